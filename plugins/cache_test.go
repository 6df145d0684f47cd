package plugins

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestForeignFilesInTheCache: what somebody else put there is not run. The cache is emptied, and
// works again.
func TestForeignFilesInTheCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are neither owners nor links")
	}
	wasm := shipped(t, "fcfs")
	for name, plant := range map[string]func(path string) error{
		"link": func(path string) error {
			away := filepath.Join(t.TempDir(), "code")
			if err := os.Rename(path, away); err != nil {
				return err
			}
			return os.Symlink(away, path)
		},
		"owner": func(path string) error { return os.Chown(path, 65534, -1) },
	} {
		if name == "owner" && os.Geteuid() != 0 {
			continue // Only root can give files away.
		}
		dir := filepath.Join(t.TempDir(), "policies")
		b := newBenchWith(t, Options{CacheDir: dir, Compiler: self(t)})
		b.use("first", wasm)
		if err := plant(cached(t, dir)[0]); err != nil {
			t.Fatal(err)
		}
		b.use("second", wasm)
		if said := b.log.String(); strings.Count(said, "failed and is emptied") != 1 {
			t.Errorf("%s: the log says %s", name, said)
		}
		b.use("third", wasm)
		info, err := os.Lstat(cached(t, dir)[0])
		if err != nil || !info.Mode().IsRegular() || owned("", info) != nil {
			t.Errorf("%s: afterwards %v, %v", name, info, err)
		}
	}
}

// TestCacheBelowAnOpenFolder: where anybody could replace the folder it is not used.
func TestCacheBelowAnOpenFolder(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	above := t.TempDir()
	for mode, refused := range map[os.FileMode]bool{
		0o777: true, 0o777 | os.ModeSticky: false, 0o755: false,
	} {
		dir := filepath.Join(above, "policies")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(above, mode); err != nil {
			t.Fatal(err)
		}
		if err := private(dir); (err != nil) != refused {
			t.Errorf("below a folder of mode %v: %v", mode, err)
		}
	}
}

// TestCacheIsBounded: the oldest files give way, and the latest stays however large it is.
func TestCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	for i, name := range []string{"c", "a", "d", "b"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		at := start.Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		most int64
		want string
	}{{400, "abcd"}, {399, "abd"}, {250, "bd"}, {10, "b"}} {
		if err := trim(dir, step.most); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		for _, e := range entries {
			left += e.Name()
		}
		if left != step.want {
			t.Errorf("of 400 bytes at most %d leave %q, want %q", step.most, left, step.want)
		}
	}
}
