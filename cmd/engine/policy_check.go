package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/builtin"
)

// maxModuleFile bounds what is read; the ABI's own limit is lower and gives the better message.
const maxModuleFile = 64 << 20

func policyCheckCommand() *cobra.Command {
	var settings string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE [--config JSON] [--json]",
		Short: "What is wrong with a module, without an instance",
		Long: `
Reads a module and tells all that would keep an instance from loading it: its form, imports and
exports, descriptor, memory, and what it answers to made-up tables of requests. FILE may also be
builtin:NAME.`,
		Example: `  engine policy check mine.wasm
  engine policy check builtin:sjf-aging --config '{"aging_tokens_per_s":50}'`,
		Args: takes(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			wasm, err := readModule(args[0])
			if err != nil {
				return err
			}
			if settings != "" && !json.Valid([]byte(settings)) {
				return usageError("--config is not JSON")
			}
			report := checkModule(cmd.Context(), wasm, []byte(settings))
			if err := addSettings(&report, args[0], []byte(settings)); err != nil {
				return err
			}
			if asJSON {
				return printJSONReport(cmd.OutOrStdout(), report)
			}
			return printReport(cmd, args[0], report)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&settings, "config", "", "`JSON` given to the module's pol_init")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// checkModule uses the limits of the policy ABI.
func checkModule(ctx context.Context, wasm, settings []byte) plugins.Report {
	return plugins.Check(ctx, wasm, settings, plugins.DefaultLimits())
}

// readModule reads a file of a bounded size, or a shipped module.
func readModule(name string) ([]byte, error) {
	if short, ok := strings.CutPrefix(name, "builtin:"); ok {
		wasm, ok := builtin.Module(short)
		if !ok {
			return nil, fmt.Errorf("no built-in policy %q; there are: %s", short,
				strings.Join(builtin.Names(), ", "))
		}
		return wasm, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	defer f.Close()
	wasm, err := io.ReadAll(io.LimitReader(f, maxModuleFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the module: %w", err)
	}
	if len(wasm) > maxModuleFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxModuleFile>>20)
	}
	return wasm, nil
}

// printReport writes the facts to stdout and the problems to stderr.
func printReport(cmd *cobra.Command, name string, r plugins.Report) error {
	out, mark := cmd.OutOrStdout(), "✓"
	if !r.OK() {
		mark = "·"
	}
	for _, line := range r.Lines {
		fmt.Fprintf(out, "%s %-12s %s\n", mark, line.Name, line.Text)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(out, "! %s\n", warning)
	}
	if r.OK() {
		_, err := fmt.Fprintf(out, "next: engine policy load %s --activate\n", name)
		return err
	}
	w := cmd.ErrOrStderr()
	for _, p := range r.Problems {
		fmt.Fprintf(w, "error[%s]: %s\n", p.Code, p.Text)
		if p.Where != "" {
			fmt.Fprintf(w, "  in %s, %s\n", name, p.Where)
		}
		for _, help := range p.Help {
			fmt.Fprintf(w, "  = help: %s\n", help)
		}
	}
	plural := "s"
	if len(r.Problems) == 1 {
		plural = ""
	}
	fmt.Fprintf(w, "%d problem%s in %s\n", len(r.Problems), plural, name)
	return reported
}

// printJSONReport writes everything to stdout; the exit code is the verdict.
func printJSONReport(w io.Writer, r plugins.Report) error {
	answer := struct {
		OK bool `json:"ok"`
		plugins.Report
	}{r.OK(), r}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		return err
	}
	if !r.OK() {
		return reported
	}
	return nil
}
