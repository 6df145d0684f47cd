//go:build !unix

package transfer

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
