package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/kvrelay/engine/host/batch"
	"github.com/kvrelay/engine/host/bench"
)

// ended gives a command that a signal ended one line in place of what each layer said of it. What
// the command itself says of its end, and every other error, stays.
func ended(ctx context.Context, err error) error {
	var child *exec.ExitError
	if err == nil || ctx.Err() == nil ||
		!errors.Is(err, context.Canceled) && !errors.As(err, &child) {
		return err
	}
	return fmt.Errorf("stopped before it was done: %v", context.Cause(ctx))
}

// interruptible is a model that computes nothing any more once ctx has ended: whatever drives it
// ends after the step at hand.
type interruptible struct {
	ctx   context.Context
	model bench.Runner
}

// Run implements bench.Runner.
func (r interruptible) Run(b *batch.Batch) ([][]float32, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	return r.model.Run(b)
}

// untilStopped is in, which ends with ctx: a command that reads a terminal would wait for it for
// ever. What it was reading when ctx ended is lost.
func untilStopped(ctx context.Context, in io.Reader) io.Reader {
	out, into := io.Pipe()
	go func() {
		_, err := io.Copy(into, in)
		into.CloseWithError(err) // nil is the end of the input.
	}()
	context.AfterFunc(ctx, func() { into.CloseWithError(ctx.Err()) })
	return out
}

// childPatience is how long a process that was asked to end may take.
const childPatience = 10 * time.Second

// asksToEnd makes the end of a command's context ask its process to end, so that it takes away what
// it made and ends its own processes; and kills it where it does not.
func asksToEnd(command *exec.Cmd) {
	command.WaitDelay = childPatience
	command.Cancel = func() error {
		if command.Process.Signal(syscall.SIGTERM) == nil {
			return nil
		}
		return command.Process.Kill() // Some systems cannot ask.
	}
}
