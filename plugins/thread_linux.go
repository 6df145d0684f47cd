package plugins

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTimed says that threadTime tells something.
const threadTimed = true

// threadTime is how long this thread has had a processor so far. The caller is locked to it.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0 // Some sandbox refuses it: nobody is blamed then.
	}
	return time.Duration(t.Nano())
}
