package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A lock that somebody else holds is tried again every lockPoll; after so many tries the wait is
// worth a word.
const (
	lockPoll     = 100 * time.Millisecond
	patientTries = 3
)

// Why a lock is not held.
var (
	errHeld    = errors.New("somebody else holds it")
	errNoLocks = errors.New("this file system has no locks")
)

// held is a lock that is held, or nil where the file system has none.
type held struct{ file *os.File }

func (h *held) alone() bool { return h != nil }

// release lets the next one in. The file stays, as the hub's client leaves it: removing it would
// let two hold a lock of the same name.
func (h *held) release() {
	if h != nil {
		_ = h.file.Close() // That ends the lock.
	}
}

// lock waits for the lock that the hub's client takes too before it writes a blob.
func (c *Client) lock(ctx context.Context, p *pull, f File) (*held, error) {
	folder := filepath.Join(c.settings.Cache, locksName, p.ref.folder())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of locks: %w", err)
	}
	name := filepath.Join(folder, f.hash+".lock")
	for tries := 1; ; tries++ {
		h, err := c.take(name)
		switch {
		case errors.Is(err, errNoLocks):
			return nil, nil
		case err == nil:
			return h, nil
		case !errors.Is(err, errHeld):
			return nil, fmt.Errorf("lock %s: %w", f.Name, err)
		}
		if tries == patientTries {
			p.watch.Say(f.Name + ": waiting for another process that fetches it")
		}
		if err := c.pause(ctx, lockPoll); err != nil {
			return nil, err
		}
	}
}

// tryLock takes the lock if it is free. A file that was replaced meanwhile is no lock: others would
// take the new one.
func tryLock(name string) (*held, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, err
	}
	if err := lockFile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	mine, err := file.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(name); err == nil && !os.SameFile(mine, there) {
			err = errHeld
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		err = errHeld
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &held{file}, nil
}
