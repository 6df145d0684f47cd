//go:build linux || darwin

package plugins

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// limitProcess bounds this process's memory and time, and makes it stand back behind the engine.
// The memory that counts is what can be written: Go reserves more addresses than the limit at its
// start.
func limitProcess() error {
	for _, limit := range []struct {
		what  int
		value uint64
	}{
		{syscall.RLIMIT_DATA, compileMemory},
		{syscall.RLIMIT_CPU, uint64(compileTime.Seconds())},
		{syscall.RLIMIT_CORE, 0},
	} {
		r := syscall.Rlimit{Cur: limit.value, Max: limit.value}
		if err := syscall.Setrlimit(limit.what, &r); err != nil {
			return fmt.Errorf("limiting the compiling process: %w", err)
		}
	}
	standBack(compileNice)
	return nil
}

// owned refuses a folder or file of another user.
func owned(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("plugins: of the cache of compiled policies %s belongs to user %d, not "+
			"to %d", path, stat.Uid, os.Geteuid())
	}
	return nil
}
