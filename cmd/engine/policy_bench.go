package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/scheduler"
	"github.com/kvrelay/engine/plugins/authortools"
)

func policyBenchCommand() *cobra.Command {
	var settings string
	var each time.Duration
	cmd := &cobra.Command{
		Use:   "bench FILE [--config JSON] [--each DURATION]",
		Short: "What a module's decisions cost, by length of the queue",
		Long: `
Lets a module decide on queues of several lengths, in turns with the native fcfs, and prints
time, fuel and the ratio of the medians, and how those differ from the run before. FILE may also be
builtin:NAME.`,
		Example: `  engine policy bench mine.wasm
  engine policy bench builtin:sjf-aging --each 2s`,
		Args: takes(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wasm, err := readModule(args[0])
			if err != nil {
				return err
			}
			if settings != "" && !json.Valid([]byte(settings)) {
				return usageError("--config is not JSON")
			}
			m, err := authortools.Measure(cmd.Context(), wasm, authortools.MeasureOptions{
				Settings: []byte(settings), Native: &scheduler.FCFS{}, Each: each})
			if err != nil {
				return err
			}
			if err := printMeasured(cmd.OutOrStdout(), m); err != nil {
				return err
			}
			return compareLast(cmd.OutOrStdout(), args[0], digestOf(wasm), m)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&settings, "config", "", "`JSON` given to the module's pol_init")
	cmd.Flags().DurationVar(&each, "each", time.Second, "how long each row takes, `DURATION`")
	return cmd
}

func printMeasured(w io.Writer, m *authortools.Measured) error {
	fmt.Fprintf(w, "%8s %8s %10s %10s %10s %10s %12s %7s\n", "waiting", "changed", "p50", "p99",
		"fuel p50", "of limit", "native fcfs", "ratio")
	allocations := 0.0
	for _, r := range m.Rows {
		note := ""
		if r.Resync {
			note = "   full resync"
		}
		fmt.Fprintf(w, "%8d %8d %10s %10s %10d %8.2f %% %12s %6.1f×%s\n", r.Waiting, r.Changed,
			micros(r.P50), micros(r.P99), r.Fuel50, 100*float64(r.FuelMost)/float64(r.Limit),
			micros(r.Native), r.Ratio(), note)
		allocations = max(allocations, r.Allocations)
	}
	_, err := fmt.Fprintf(w, "compile %s · instantiate %s · memory %s · %.0f host allocations "+
		"a step\n", m.Compile.Round(time.Microsecond), m.Instantiate.Round(time.Microsecond),
		size(int(m.Memory)), allocations)
	return err
}

func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

func policyInspectCommand() *cobra.Command {
	var settings string
	cmd := &cobra.Command{
		Use:   "inspect FILE [--config JSON]",
		Short: "What a module is, needs and offers",
		Long: `
Prints a module's descriptor, capabilities, imports, exports and sizes, without judging its answers;
and of its policy.toml, if that stands beside it, what can be set and what its reasons mean.
FILE may also be builtin:NAME.`,
		Example: `  engine policy inspect mine.wasm`,
		Args:    takes(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wasm, err := readModule(args[0])
			if err != nil {
				return err
			}
			facts, err := authortools.Inspect(cmd.Context(), wasm, []byte(settings))
			if err != nil {
				return err
			}
			about, err := moduleAbout(args[0])
			if err != nil {
				return err
			}
			for _, f := range append(facts, aboutFacts(about)...) {
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", f.Name, f.Text)
			}
			return nil
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&settings, "config", "", "`JSON` given to the module's pol_init")
	return cmd
}
