package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/plugins/authortools"
)

func policyBuildCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "build [--dir DIR] [-- FLAGS]",
		Short: "Compile a policy and check the module",
		Long: `
Finds the compiler for the policy in this folder, runs the commands of its policy.toml, and checks
the module as "engine policy check" does. FLAGS go to the compiler. Beside NAME.wasm it writes
NAME.build.json: the compiler's version, the commands and the module's digest. A compiler that is
missing is named with the line that installs it. $POL_CC and $POL_RUSTC come before what is found.`,
		Example: `  engine policy build
  engine policy build -- -DDEBUG=1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usageError("policy build takes no argument but flags behind --, got %q",
					args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			built, err := buildPolicy(cmd.Context(), cmd.OutOrStdout(), dir, args)
			if err != nil {
				return err
			}
			report := checkModule(cmd.Context(), built.Wasm, nil)
			if !report.OK() {
				return printReport(cmd, built.Path, report)
			}
			for _, warning := range report.Warnings {
				fmt.Fprintf(cmd.OutOrStdout(), "! %s\n", warning)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "check ✓      next: engine policy test")
			return nil
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "`DIR` of the policy")
}

// buildPolicy builds and tells so in one line; what the compiler says is always shown.
func buildPolicy(
	ctx context.Context, w io.Writer, dir string, flags []string,
) (*authortools.Built, error) {
	built, err := authortools.Build(ctx, dir, flags)
	var missing *authortools.MissingTool
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("%s\ninstall it:  %s", missing.What, missing.Install)
	}
	if err != nil {
		return nil, err
	}
	if built.Printed != "" {
		fmt.Fprint(w, built.Printed)
	}
	_, err = fmt.Fprintf(w, "%s → %s   %s   %.1f s\n", built.Tool, built.Path,
		size(len(built.Wasm)), built.Took.Seconds())
	return built, err
}

func policyWatchCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "watch [--dir DIR]",
		Short: "Build and test a policy at each change",
		Long: `
Builds the policy in this folder and runs its tests, and again whenever a file in it is written,
until Ctrl-C. Files are looked at twice a second.`,
		Example: `  engine policy watch`,
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := cmd.OutOrStdout()
			ticks := time.NewTicker(500 * time.Millisecond)
			defer ticks.Stop()
			return authortools.Watch(cmd.Context(), dir, ticks.C, func() {
				fmt.Fprintf(w, "── %s\n", time.Now().Format(time.TimeOnly))
				built, err := buildPolicy(cmd.Context(), w, dir, nil)
				if err == nil {
					err = testPolicy(cmd.Context(), w, testPlan{dir: dir, wasm: built.Wasm,
						states: 1000})
				}
				if err != nil && !errors.Is(err, reported) {
					fmt.Fprintln(w, err)
				}
			})
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	dirFlag(cmd, &dir)
	return cmd
}
