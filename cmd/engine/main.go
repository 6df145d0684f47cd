// Command engine serves language models with prefill and decode apart, and scheduling policies as
// WebAssembly modules. It parses flags, wires the packages together (wire.go) and maps errors to
// exit codes; what it does lives below host, plugins and gpu.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// streams are what a command reads and writes. Answers go to out, everything else to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, s streams) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	return report(s.err, ended(ctx, root.ExecuteContext(ctx)))
}

// rootCommand is the whole tree.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "engine",
		Short: "LLM serving: prefill and decode apart, scheduling policies in WebAssembly",
		Long: `
engine serves a language model behind the OpenAI API. A prefill instance computes a prompt's keys
and values and sends them to a decode instance, which generates; a policy module in WebAssembly
decides which requests run next and may be swapped while streams go on.`,
		Example: `
  engine run "In the beginning"            continue a prompt with the embedded model
  engine serve --demo-pd                   prefill, decode and router on this machine
  engine config init engine.toml           every setting with its default
  engine policy check mine.wasm            what is wrong with a module`,
	}
	root.AddCommand(runCommand(), serveCommand(), reloadCommand(), tokenizeCommand())
	root.AddCommand(pullCommand(), quantizeCommand(), benchCommand())
	root.AddCommand(modelsCommand(), topCommand(), metricsCommand(),
		drainCommand(), explainCommand(), instancesCommand(), traceCommand())
	root.AddCommand(policyCommand(), configCommand(), versionCommand(), compilePolicyCommand(),
		tracePolicyCommand(), checkReloadCommand())
	dress(root)
	return root
}

// The exit codes, as sysexits.h has them beyond 2.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 69
	exitTemporary   = 75
	exitConfig      = 78
)

// failure is an error with an exit code of its own; every other error is exitFailed.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usageError says that the command line is wrong.
func usageError(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// unreachable says that no instance answered.
func unreachable(err error) error { return &failure{exitUnreachable, err} }

// badConfig says that the configuration has problems, which are printed as they are.
type badConfig []config.Problem

func (badConfig) Error() string { return "the configuration is not valid" }

// reported is a failure whose words are already on the screen.
var reported = &failure{exitFailed, errors.New("reported")}

// report prints err and returns its exit code. It is the one place that does either.
func report(w io.Writer, err error) int {
	var f *failure
	var problems badConfig
	switch {
	case err == nil:
		return 0
	case err == error(reported):
		return exitFailed
	case errors.As(err, &problems):
		config.Report(w, problems)
		return exitConfig
	case errors.As(err, &f):
		fmt.Fprintf(w, "error: %v\n", err)
		return f.code
	}
	fmt.Fprintf(w, "error: %v\n", err)
	if errors.Is(err, syscall.EADDRINUSE) {
		return exitTemporary // Whoever holds the address may leave.
	}
	return exitFailed
}
