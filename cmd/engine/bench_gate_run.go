package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"github.com/kvrelay/engine/host/bench"
)

// measure runs one of the binaries.
func (o *benchGate) measure(ctx context.Context, binary, file string) (*bench.Result, error) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	args := append(append([]string{"bench"}, o.flags...), "--json", file)
	command := exec.CommandContext(ctx, binary, args...)
	asksToEnd(command)
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return nil, fmt.Errorf("engine bench: %w: %.1000s", err, text)
	case err != nil:
		return nil, fmt.Errorf("cannot be run; name another engine's binary: %w", err)
	}
	result, err := bench.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("ended without a result; is it an engine that has `bench --json`?")
	}
	return result, err
}
