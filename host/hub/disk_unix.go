//go:build linux || darwin

package hub

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the whole file, for as long as it is open.
func lockFile(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return errHeld
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return errNoLocks
	}
	return err
}

// freeSpace is what the user may still write below a folder.
func freeSpace(folder string) (bytes int64, known bool) {
	var s unix.Statfs_t
	if unix.Statfs(folder, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
