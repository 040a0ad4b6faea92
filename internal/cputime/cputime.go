// Package cputime tells benchmarks what a process has used of the processor.
package cputime
