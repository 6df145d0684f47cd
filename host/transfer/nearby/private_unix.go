//go:build unix

package nearby

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// HasUnix says whether this system has unix sockets and folders that are private by their mode.
const HasUnix = true

// private says what is wrong with a folder: it must be ours, and closed to everybody else.
func private(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("look at the folder for sockets: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of ours that is closed to others (mode 0700)", folder)
	}
	return nil
}

// refusedBy says whether nobody listens to a socket any more.
func refusedBy(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
