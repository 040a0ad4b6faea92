// Package rig is what tests of several packages share: stores, queues and logs that are watched,
// processes that die, and a world in virtual time where workers come and go. What goes wrong is
// said in the words of onceqtest and internal/faulty.
package rig
