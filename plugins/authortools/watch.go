package authortools

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
)

// watched bounds the files that are looked at.
const watched = 10_000

// Watch calls changed once, and again whenever a file of the policy's folder was written, until the
// context ends. It looks at times and sizes, twice a second by the given ticks: folders of network
// and container file systems tell of no changes by themselves.
func Watch(ctx context.Context, dir string, ticks <-chan time.Time, changed func()) error {
	last := ""
	for {
		now, err := snapshot(dir)
		if err != nil {
			return err
		}
		if now != last {
			changed()
			if last, err = snapshot(dir); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// snapshot is a text that differs when a file was written. What builds write does not count.
func snapshot(dir string) (string, error) {
	var b strings.Builder
	files := 0
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && at != dir &&
			(strings.HasPrefix(name, ".") || name == "node_modules" || name == "target") {
			return filepath.SkipDir
		}
		made := strings.HasSuffix(name, ".wasm") || strings.HasSuffix(name, ".build.json") ||
			name == "policy.schema.json"
		if d.IsDir() || made {
			return nil
		}
		if files++; files > watched {
			return fmt.Errorf("more than %d files to watch in %s", watched, dir)
		}
		info, err := d.Info()
		if err != nil {
			return nil // It is gone already.
		}
		fmt.Fprintln(&b, at, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	return b.String(), err
}
