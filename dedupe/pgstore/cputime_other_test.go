//go:build !unix

package pgstore

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
