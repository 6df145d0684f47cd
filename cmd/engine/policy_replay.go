package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/plugins"
)

// maxSavedFault bounds what is read of a saved fault.
const maxSavedFault = 64 << 20

func policyReplayCommand() *cobra.Command {
	var input string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "replay MODULE --input FILE [--json]",
		Short: "Decide the step again at which a policy failed",
		Long: `
When a policy fails, a running instance saves what it was shown to a file in its state folder, and
says so in its log. This decides that step again, with the module's state as it was: the same trap,
the same fuel. MODULE is the file of the module, or builtin:NAME. Another module, such as a mended
one, is shown that step alone.

The exit code is 0 when the module comes to the same end, and for another module when the step is
sound; 1 otherwise.`,
		Example: `  engine policy replay mine.wasm --input ~/.local/state/engine/faults/90112.bin`,
		Args:    takes(1, "MODULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if input == "" {
				return usageError("--input FILE is needed: the file that the log names")
			}
			wasm, err := readModule(args[0])
			if err != nil {
				return err
			}
			in, err := readSavedFault(input)
			if err != nil {
				return err
			}
			r, err := plugins.Replay(cmd.Context(), wasm, in)
			if err != nil {
				return fmt.Errorf("replay %s: %w", input, err)
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
					return err
				}
			} else {
				printReplayed(cmd.OutOrStdout(), in, r)
			}
			if r.Exact && !r.Same || !r.Exact && r.Fault != nil {
				return reported
			}
			return nil
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&input, "input", "", "the saved fault, `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// readSavedFault reads a file of a bounded size.
func readSavedFault(name string) (*plugins.Input, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the saved fault: %w", err)
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxSavedFault+1))
	if err != nil {
		return nil, fmt.Errorf("read the saved fault: %w", err)
	}
	if len(file) > maxSavedFault {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxSavedFault>>20)
	}
	in, err := plugins.ReadInput(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return in, nil
}

func printReplayed(w io.Writer, in *plugins.Input, r *plugins.Replayed) {
	f := in.Fault
	fmt.Fprintf(w, "saved     %s  step %d  %s in %s, fuel %d of %d\n          %s\n", in.Policy,
		f.Step, f.Class, f.Call, f.Fuel, f.Limit, f.Detail)
	switch {
	case in.Lost:
		fmt.Fprintln(w, "! the module keeps state that cannot be saved: the step alone is shown")
	case !r.Exact:
		fmt.Fprintln(w, "! this is not the module that failed: the step alone is shown")
	default:
		fmt.Fprintf(w, "replayed  %d steps up to it\n", r.Steps)
	}
	if r.Fault == nil {
		fmt.Fprintf(w, "✓ sound   %d decisions, within the rules\n", len(r.Answer))
		if r.Exact {
			fmt.Fprintln(w, "✗ it does not fail again")
		}
		return
	}
	at := ""
	if r.At != "" {
		at = "  at " + r.At
	}
	fmt.Fprintf(w, "          %s in %s, fuel %d of %d%s\n          %s\n", r.Fault.Class,
		r.Fault.Call, r.Fault.Fuel, r.Fault.Limit, at, r.Fault.Detail)
	switch {
	case r.Same:
		fmt.Fprintln(w, "✓ same    fault, fuel and step")
	case r.Exact:
		fmt.Fprintln(w, "✗ it fails otherwise")
	default:
		fmt.Fprintln(w, "✗ it fails too")
	}
}

// tracePolicyName is the hidden command that a serving instance runs itself by, to find the place
// of a trap in a process that is limited and can be killed.
const tracePolicyName = "trace-policy"

func tracePolicyCommand() *cobra.Command {
	return &cobra.Command{
		Use:    tracePolicyName,
		Short:  "Find the place of a trap from a module and a saved fault on stdin",
		Hidden: true,
		Args:   takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if plugins.TraceMain(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()) != 0 {
				return reported
			}
			return nil
		},
	}
}
