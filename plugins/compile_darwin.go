package plugins

import "syscall"

// standBack gives this process a low priority. It is only a courtesy.
func standBack(nice int) { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, nice) }
