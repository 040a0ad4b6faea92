// Package schedules is all tests: schedule.Run beside real stores and workers.
package schedules
