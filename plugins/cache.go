package plugins

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/tetratelabs/wazero"
)

// cacheBytes bounds the files of the cache: beyond it the oldest are removed.
const cacheBytes = 1 << 30

// open returns the cache for one runtime, nil without one. What lies in it is machine code that
// this process will run: whoever could have put a file there is looked for each time.
func (c compiler) open() (wazero.CompilationCache, error) {
	if c.dir == "" {
		return nil, nil
	}
	err := private(c.dir)
	if err == nil {
		err = trim(c.dir, cacheBytes)
	}
	if err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("opening the cache of compiled policies: %w", err)
	}
	return cache, nil
}

// private refuses a folder that somebody else could write machine code into, or replace.
func private(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("plugins: the cache of compiled policies: %w", err)
	case !info.IsDir():
		return fmt.Errorf("plugins: the cache of compiled policies, %s, is not a folder", dir)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("plugins: the cache of compiled policies, %s, has mode %o and must have "+
			"0700: it holds machine code; chmod it, or name another folder",
			dir, info.Mode().Perm())
	}
	above, err := os.Stat(filepath.Dir(dir))
	if err == nil && runtime.GOOS != "windows" && above.Mode().Perm()&0o002 != 0 &&
		above.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("plugins: the cache of compiled policies, %s, lies in a folder of mode "+
			"%o, where anybody may replace it; chmod that one, or name another folder",
			dir, above.Mode().Perm())
	}
	return errors.Join(err, owned(dir, info))
}

// trim refuses what is neither a folder nor a file of this user's, and removes the oldest files
// until the others take no more than so many bytes.
func trim(dir string, most int64) error {
	type file struct {
		path string
		fs.FileInfo
	}
	var files []file
	total := int64(0)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Another engine removed it.
		}
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("plugins: in the cache of compiled policies %s is neither a file "+
				"nor a folder", path)
		case !info.IsDir():
			files, total = append(files, file{path, info}), total+info.Size()
		}
		return owned(path, info)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b file) int { return a.ModTime().Compare(b.ModTime()) })
	for ; total > most && len(files) > 1; files = files[1:] {
		if err := os.Remove(files[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= files[0].Size()
	}
	return nil
}
