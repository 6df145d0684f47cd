package plugins

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// standBack gives every thread of this process a low priority, whatever it inherited: an engine may
// run at a real-time priority, and Linux counts priorities by thread. Threads that come later take
// it from those that start them. SCHED_BATCH never interrupts another thread by waking up. All this
// is only a courtesy: what is refused stays as it is.
func standBack(nice int) {
	for range 2 { // A thread may start another one while the first round goes on.
		threads, _ := os.ReadDir("/proc/self/task")
		for _, entry := range threads {
			if id, err := strconv.Atoi(entry.Name()); err == nil {
				_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr,
					Policy: unix.SCHED_BATCH, Nice: int32(nice)}, 0)
			}
		}
	}
}
