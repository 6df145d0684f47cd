package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
)

// What a compiling process may use.
const (
	compileTime   = 30 * time.Second
	compileMemory = 1 << 30  // bytes
	compileInput  = 32 << 20 // bytes of a metered module
	compileNice   = 10
)

// errCompileTime says that a compilation was stopped for its length.
var errCompileTime = fmt.Errorf("compiling took longer than allowed (%v) and was stopped",
	compileTime)

// compiler compiles modules beside the engine: in a process that can be limited and killed, because
// the runtime cannot be stopped inside a function and a compilation in this process makes the
// engine's steps late.
type compiler struct {
	command []string     // the program and its arguments, nil for this process
	dir     string       // the cache, "" for none
	log     *slog.Logger // hears of a cache that cannot be used
	gone    *atomic.Bool // the cache could not be written: it is left alone from then on
}

// newCompiler makes the cache's folder, private to this user. A folder that cannot be made, or that
// somebody else could write to, is not used: an engine runs without it.
func newCompiler(command []string, dir string, log *slog.Logger) compiler {
	c := compiler{command: command, dir: dir, log: log, gone: new(atomic.Bool)}
	if dir == "" {
		return c
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = private(dir)
	}
	if err != nil {
		log.Warn("the cache of compiled policies is not used", "folder", dir, "error", err)
		c.dir = ""
	}
	return c
}

// run compiles a metered module into the cache by another process. Without a command it does
// nothing: the module is then compiled where it is loaded.
func (c compiler) run(ctx context.Context, metered []byte) error {
	if c.command == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	args := append(append([]string{}, c.command[1:]...), c.dir)
	cmd := exec.CommandContext(ctx, c.command[0], args...)
	cmd.Stdin = bytes.NewReader(metered)
	said := &tail{limit: 4096}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errCompileTime
	case ctx.Err() != nil:
		return fmt.Errorf("compiling was stopped: %w", ctx.Err())
	default:
		return fmt.Errorf("compiling failed: %w: %s", err, strings.TrimSpace(said.String()))
	}
}

// tail keeps the first bytes written to it and drops the rest.
type tail struct {
	bytes.Buffer
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	if n := t.limit - t.Len(); n > 0 {
		t.Buffer.Write(p[:min(n, len(p))])
	}
	return len(p), nil
}

// CompileMain is what the program named by Options.Compiler calls, with the arguments that Load
// appends to its own: it reads a metered module from stdin, limits itself, and compiles the module
// into the cache. It returns the process's exit status.
func CompileMain(args []string, stdin io.Reader, stderr io.Writer) int {
	err := compileInto(args, stdin)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func compileInto(args []string, stdin io.Reader) error {
	if len(args) != 1 {
		return fmt.Errorf("one argument is needed, the cache's folder; there are %d", len(args))
	}
	if err := limitProcess(); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	debug.SetMemoryLimit(compileMemory * 3 / 4)
	wasm, err := io.ReadAll(io.LimitReader(stdin, compileInput+1))
	if err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}
	if len(wasm) > compileInput {
		return fmt.Errorf("the module is larger than %d bytes", compileInput)
	}
	c := compiler{dir: args[0]}
	cache, err := c.open()
	if err != nil {
		return err
	}
	g := &generation{cache: cache, limits: Limits{MemoryPages: MaxMemoryPages}}
	defer g.close()
	config := wazero.NewRuntimeConfig().WithCompilationCache(cache)
	return g.compile(context.Background(), config, wasm)
}
