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

// child is a host whose modules are compiled by this program, started anew.
func child(t *testing.T, command ...string) (*Host, string) {
	t.Helper()
	if command == nil {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		command = []string{self, "-test.run=^$"}
		t.Setenv(compileEnv, "1")
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

func TestPrivateCache(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Slots: 1, Decisions: 1, CacheDir: dir}); err == nil {
		t.Error("a folder that others may read was taken")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Slots: 1, Decisions: 1, CacheDir: link}); err == nil {
		t.Error("a link was taken")
	}
	if _, err := New(Options{Slots: 1, Decisions: 1, Compiler: []string{"x"}}); err == nil {
		t.Error("a compiler without a cache was taken")
	}
}

func TestCompileMainRefuses(t *testing.T) {
	var said strings.Builder
	if CompileMain(nil, strings.NewReader(""), &said) == 0 || said.Len() == 0 {
		t.Error("no argument was enough")
	}
}
