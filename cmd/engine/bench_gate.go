package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/bench"
)

// benchGate compares two binaries.
type benchGate struct {
	rounds        int
	least         float64
	before, after string
	flags         []string // of engine bench
}

func benchGateCommand() *cobra.Command {
	var o benchGate
	cmd := &cobra.Command{
		Use:   "gate BEFORE [-- FLAGS]",
		Short: "Fail where this binary is slower than another one",
		Long: `
Runs "engine bench FLAGS" of BEFORE, another engine, and of this one by turns, each in a process of
its own, and prints the ratio of every figure: above 1 better, below 1 worse. A figure is too low
where the median of its ratios and the ratio of the best samples are below --least. Where some are,
the rounds are repeated, twice at most, and it fails when some still are. make bench-gate builds
BEFORE from a commit.`,
		Example: `
  engine bench gate ../before/engine -- -p 512 -n 64 --model model.gguf --repeat 1
  engine bench gate ../before/engine --least 0.97 --rounds 9 -- --kernels --dtype q8_0`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || cmd.ArgsLenAtDash() == 0 {
				return usageError("%s needs BEFORE; see `%[1]s --help`", cmd.CommandPath())
			}
			if dash := cmd.ArgsLenAtDash(); len(args) > 1 && dash != 1 {
				return usageError("%s: flags of engine bench follow --", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.rounds < 1 || !(o.least > 0) {
				return usageError("--rounds is at least 1, --least above 0")
			}
			o.before, o.flags = args[0], args[1:]
			if o.after, err = os.Executable(); err != nil {
				return err
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return o.run(cmd.Context(), s)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().IntVar(&o.rounds, "rounds", 5, "how often both are run")
	cmd.Flags().Float64Var(&o.least, "least", 0.95,
		"fail when a figure is below this part of its value before")
	return cmd
}

// run measures and judges.
func (o *benchGate) run(ctx context.Context, s streams) error {
	folder, err := os.MkdirTemp("", "engine-gate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "result.json")
	fmt.Fprintf(s.err, "%s · load %.1f · engine bench %s\n", processorName(),
		thisMachine(0).LoadAtRun, strings.Join(o.flags, " "))
	var gate bench.Gate
	for try := range gateTries {
		if err := o.measureRounds(ctx, &gate, file, s.err); err != nil {
			return err
		}
		worse := len(gate.Worse(o.least))
		if worse == 0 {
			break
		}
		if try < gateTries-1 {
			fmt.Fprintf(s.err, "%s below %v: measuring again\n", plural(worse, "figure"), o.least)
		}
	}
	return o.judge(&gate, s.out)
}

// gateTries is how often the rounds are run before something counts as slower.
const gateTries = 3

// measureRounds adds rounds. Which of the two goes first changes.
func (o *benchGate) measureRounds(
	ctx context.Context, gate *bench.Gate, file string, out io.Writer,
) (err error) {
	bar := newBenchBar(out, "round", o.rounds)
	defer bar.end()
	for round := range o.rounds {
		var results [2]*bench.Result
		for turn := range 2 {
			which := (round + turn) % 2
			binary := []string{o.before, o.after}[which]
			if results[which], err = o.measure(ctx, binary, file); err != nil {
				return fmt.Errorf("%s: %w", binary, err)
			}
		}
		gate.Add(results[0], results[1])
		bar.set(round + 1)
	}
	return nil
}

// judge prints the ratios and fails where some are too low.
func (o *benchGate) judge(gate *bench.Gate, out io.Writer) error {
	if err := gate.Write(out); err != nil {
		return err
	}
	if gate.Rounds() == 0 {
		return errors.New("the two results have no figure in common")
	}
	worse := gate.Worse(o.least)
	if len(worse) == 0 {
		_, err := fmt.Fprintf(out, "no figure is below %v of before, in the median of %s and at "+
			"its best\n", o.least, plural(gate.Rounds(), "round"))
		return err
	}
	return fmt.Errorf("below %v of before, in the median of %s and at their best:\n  %s", o.least,
		plural(gate.Rounds(), "round"), strings.Join(worse, "\n  "))
}
