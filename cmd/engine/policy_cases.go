package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/plugins/authortools"
	"github.com/kvrelay/engine/plugins/policyfile"
)

// testPlan is what one test run does.
type testPlan struct {
	dir    string
	wasm   []byte
	files  []string
	states int
	seed   uint64
}

func policyTestCommand() *cobra.Command {
	plan := testPlan{}
	var module string
	cmd := &cobra.Command{
		Use:   "test [FILE.toml] [--dir DIR] [--module WASM] [--fuzz N] [--seed N]",
		Short: "Test a policy: records in, plan out",
		Long: `
Runs the test cases of the policy in this folder, tests/*.toml, against its module: tables of
requests, and what must be decided on them. Then it shows the module made-up tables; an answer that
an engine would refuse is shrunk to the smallest case and saved as tests/found.toml.`,
		Example: `  engine policy test
  engine policy test tests/order.toml --fuzz 0
  engine policy test --module builtin:fcfs`,
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if module == "" {
				file, err := policyfile.Read(filepath.Join(plan.dir, "policy.toml"))
				if err != nil {
					return err
				}
				module = filepath.Join(plan.dir, file.Name+".wasm")
			}
			wasm, err := readModule(module)
			if os.IsNotExist(err) {
				return fmt.Errorf("%w\nbuild it first:  engine policy build", err)
			}
			if err != nil {
				return err
			}
			plan.wasm, plan.files = wasm, args
			return testPolicy(cmd.Context(), cmd.OutOrStdout(), plan)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	dirFlag(cmd, &plan.dir)
	cmd.Flags().StringVar(&module, "module", "", "`WASM` file or builtin:NAME; else the policy's")
	cmd.Flags().IntVar(&plan.states, "fuzz", 5000, "made-up tables to try, `N`; 0 tries none")
	cmd.Flags().Uint64Var(&plan.seed, "seed", 1, "`N` from which made-up tables follow")
	return cmd
}

// testPolicy runs cases and made-up tables; a failure is told and returned as reported.
func testPolicy(ctx context.Context, w io.Writer, p testPlan) error {
	cases, err := authortools.ReadCases(p.dir, p.files...)
	if err != nil {
		return err
	}
	verdicts, err := authortools.RunCases(ctx, p.wasm, cases)
	if err != nil {
		return err
	}
	failed := printVerdicts(w, verdicts)
	fuzz := ""
	if p.states > 0 {
		f, err := authortools.Fuzz(ctx, p.wasm, authortools.FuzzOptions{Seed: p.seed,
			States: p.states, Longest: time.Minute})
		if err != nil {
			return err
		}
		fuzz = fmt.Sprintf("   (made-up tables: %d states, 0 counter-examples, %.1f s)", f.States,
			f.Took.Seconds())
		if f.Bad != nil {
			failed++
			fuzz = fmt.Sprintf("   (made-up tables: %d states, 1 counter-example, shrunk to %s, "+
				"%.1f s)", f.States, plural(f.Bad.Records, "record"), f.Took.Seconds())
			if err := saveFound(w, p.dir, f.Bad); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "%d passed, %d failed%s\n", len(verdicts)+min(p.states, 1)-failed, failed, fuzz)
	if failed > 0 {
		return reported
	}
	return nil
}

// printVerdicts writes what passed, three to a line, then what failed.
func printVerdicts(w io.Writer, verdicts []authortools.Verdict) (failed int) {
	for i, v := range verdicts {
		mark := "✓ "
		if !v.OK() {
			mark = "✗ "
			failed++
		}
		text := mark + v.Name
		fmt.Fprint(w, text)
		if i%3 == 2 || i == len(verdicts)-1 {
			fmt.Fprintln(w)
		} else {
			fmt.Fprint(w, strings.Repeat(" ", max(2, 26-utf8.RuneCountInString(text))))
		}
	}
	for _, v := range verdicts {
		if !v.OK() {
			fmt.Fprintf(w, "✗ %s\n    %s   %s\n      %s\n", v.Name, v.Where, v.Why,
				strings.Join(v.Table, "\n      "))
		}
	}
	return failed
}

// saveFound keeps a counter-example as a test case.
func saveFound(w io.Writer, dir string, found *authortools.CounterExample) error {
	to := filepath.Join(dir, "tests", "found.toml")
	fmt.Fprintf(w, "✗ made-up tables\n    %s\n      %s\n", found.Why,
		strings.Join(found.Steps, "\n      "))
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(to, []byte(found.Text), 0o666); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "    saved %s      this alone: engine policy test %s --fuzz 0\n", to,
		to)
	return err
}
