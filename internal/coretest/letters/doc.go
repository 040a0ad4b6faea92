// Package letters tests dead letters: how they are made and kept, who may reopen a job by one, and
// what a forged one causes.
package letters
