package plugins

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

// compileEnv turns this test program into the compiling process.
const compileEnv = "ENGINE_TEST_COMPILE"

func TestMain(m *testing.M) {
	if os.Getenv(compileEnv) != "" {
		os.Exit(CompileMain(os.Args[len(os.Args)-1:], os.Stdin, os.Stderr))
	}
	if os.Getenv(traceEnv) != "" && len(os.Args) == 2 && os.Args[1] == "-test.run=^$" {
		os.Exit(TraceMain(os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// self is this program as the compiling one.
func self(t *testing.T) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(compileEnv, "1")
	return []string{program, "-test.run=^$"}
}

// child is a host whose modules are compiled by this program, started anew.
func child(t *testing.T, command ...string) (*Host, string) {
	t.Helper()
	if command == nil {
		command = self(t)
	}
	dir := filepath.Join(t.TempDir(), "policies")
	h, err := New(Options{Slots: 64, Decisions: 16, CacheDir: dir, Compiler: command})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, dir
}

// cached lists the files of a cache.
func cached(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCompileInAnotherProcess(t *testing.T) {
	h, dir := child(t)
	status, err := h.Load(t.Context(), Spec{Name: "fcfs", Wasm: shipped(t, "fcfs")})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(cached(t, dir)); n != 1 {
		t.Errorf("%d files in the cache", n)
	}
	if status.Version != "1.0.0" || status.State != StateReady {
		t.Errorf("status %+v", status)
	}
	// The engine itself wrote nothing: it took what the other process made.
	before, _ := os.Stat(cached(t, dir)[0])
	if _, err := h.Load(t.Context(), Spec{Name: "again", Wasm: shipped(t, "fcfs")}); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(cached(t, dir)[0])
	if !before.ModTime().Equal(after.ModTime()) && len(cached(t, dir)) != 1 {
		t.Error("compiled twice")
	}
}

func TestCompilerFails(t *testing.T) {
	for want, command := range map[string][]string{
		"compiling failed": {"/bin/false"}, "no such file": {"/nonexistent"},
	} {
		h, _ := child(t, command...)
		_, err := h.Load(t.Context(), Spec{Name: "fcfs", Wasm: shipped(t, "fcfs")})
		if f := asFault(t, err, abi.FaultLoadCompile); !strings.Contains(f.Detail, want) {
			t.Errorf("%v: %v", command, f)
		}
	}
}

// TestCompilerIsKilled: a load that is no longer wanted ends the compiling process, which would not
// end by itself.
func TestCompilerIsKilled(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	h, _ := child(t, "/bin/sh", "-c", "exec "+sleep+" 1000")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := h.Load(ctx, Spec{Name: "fcfs", Wasm: shipped(t, "fcfs")})
		done <- err
	}()
	cancel()
	if f := asFault(t, <-done, abi.FaultLoadCompile); !strings.Contains(f.Detail, "stopped") {
		t.Errorf("%v", f)
	}
}

// TestPrivateCache: a folder that somebody else could write to is not used, and the host works.
func TestPrivateCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir, link, file, filepath.Join(file, "below")} {
		b := newBenchWith(t, Options{CacheDir: folder, Compiler: self(t)})
		if strings.Count(b.log.String(), "level=WARN") != 1 {
			t.Errorf("%s: the log says %q", folder, b.log)
		}
		b.use("fcfs", shipped(t, "fcfs"))
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("%s was written to", folder)
		}
	}
}

// TestDamagedCache: whatever became of the files in the cache, the module is loaded, and the cache
// works again afterwards.
func TestDamagedCache(t *testing.T) {
	wasm := shipped(t, "fcfs")
	for name, damage := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"short": func(b []byte) []byte { return b[:len(b)/2] },
		"other": func(b []byte) []byte { return append([]byte("not a header"), b[12:]...) },
		"code":  func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		for _, command := range [][]string{self(t), nil} {
			dir := filepath.Join(t.TempDir(), "policies")
			b := newBenchWith(t, Options{CacheDir: dir, Compiler: command})
			b.use("first", wasm)
			for _, path := range cached(t, dir) {
				file, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			b.use("second", wasm)
			if n := strings.Count(b.log.String(), "failed and is emptied"); n != 1 {
				t.Errorf("%s: %d warnings: %s", name, n, b.log)
			}
			b.use("third", wasm)
			if n := len(cached(t, dir)); n != 1 ||
				strings.Count(b.log.String(), "level=WARN") != 1 {
				t.Errorf("%s: %d files afterwards: %s", name, n, b.log)
			}
			if _, err := b.decide(1); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCacheCannotBeWritten: the host says so once and works without it.
func TestCacheCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	b := newBenchWith(t, Options{CacheDir: dir, Compiler: self(t)})
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.use("first", shipped(t, "fcfs"))
	b.use("second", shipped(t, "fcfs"))
	if strings.Count(b.log.String(), "level=WARN") != 1 {
		t.Errorf("the log says %s", b.log)
	}
}

// TestNothingCanBeWritten: without any folder the engine compiles itself.
func TestNothingCanBeWritten(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the temporary folder has another name")
	}
	command := self(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	b := newBenchWith(t, Options{Compiler: command})
	b.use("fcfs", shipped(t, "fcfs"))
	if !strings.Contains(b.log.String(), "compiled inside the engine") {
		t.Errorf("the log says %s", b.log)
	}
}

func TestCompileMainRefuses(t *testing.T) {
	var said strings.Builder
	if CompileMain(nil, strings.NewReader(""), &said) == 0 || said.Len() == 0 {
		t.Error("no argument was enough")
	}
}
