package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/admin"
)

// policyCommands are the commands that talk to a running instance.
func policyCommands() []*cobra.Command {
	return []*cobra.Command{policyLoadCommand(), policyListCommand(), policyRollbackCommand(),
		policyUnloadCommand()}
}

// loadOptions are the flags of `engine policy load`.
type loadOptions struct {
	admin    adminTarget
	source   string // a file, or builtin:NAME
	config   string // JSON
	activate bool
	part     string // select or chunk; "" is both
}

func policyLoadCommand() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load FILE|NAME [--config JSON] [--activate [--as PART]] [--admin ADDR]",
		Short: "Give a module to a running instance",
		Long: `
Sends a module to a running instance, which checks, meters, compiles and tries it. With --activate
it then decides from the next step on; nothing is dropped. NAME is one of engine policy
list --builtin, or a [policies.NAME] of the instance's file. A module that does not pass changes
nothing.

Two modules can share the work: one selects which requests run, in which order, and the other sets
the chunk lengths. --as select or --as chunk changes one of the two and leaves the other.`,
		Example: `  engine policy load mine.wasm --activate
  engine policy load builtin:sjf-aging --activate --config '{"aging_tokens_per_s":50}'`,
		Args: takes(1, "FILE|NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.source = args[0]
			if o.part != "" && !o.activate {
				return usageError("--as says what the policy decides: it needs --activate")
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyLoad(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &o.admin)
	cmd.Flags().StringVar(&o.config, "config", "", "`JSON` given to the module's pol_init")
	cmd.Flags().BoolVar(&o.activate, "activate", false, "let it decide from the next step on")
	cmd.Flags().StringVar(&o.part, "as", "", "decide one `PART` only: select or chunk")
	return cmd
}

func policyListCommand() *cobra.Command {
	var admin adminTarget
	var asJSON, shipped bool
	cmd := &cobra.Command{
		Use:   "list [--json] [--admin ADDR | --builtin]",
		Short: "The modules of a running instance, or those in the binary",
		Example: `  engine policy list
  engine policy list --builtin`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			if shipped {
				return listBuiltins(s.out, asJSON)
			}
			return policyList(cmd.Context(), admin, asJSON, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of a table")
	cmd.Flags().BoolVar(&shipped, "builtin", false, "the policies that this binary ships")
	return cmd
}

func policyRollbackCommand() *cobra.Command {
	var address adminTarget
	var ask admin.Rollback
	cmd := &cobra.Command{
		Use:   "rollback [NAME@VERSION | --to N] [--admin ADDR]",
		Short: "Let what decided before decide again",
		Long: `
Goes back to what decided before the latest swap; once more goes forth again. --to N goes back to
swap N of the history that engine policy list shows, NAME@VERSION to the latest of that name in it.
A module that is not loaded any more is loaded again. policy.keep says how many swaps are kept.`,
		Example: `  engine policy rollback
  engine policy rollback --to 3
  engine policy rollback builtin:fcfs`,
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if ask.Number > 0 {
					return usageError("--to and a name exclude each other")
				}
				ask.To = args[0]
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyRollback(cmd.Context(), address, ask, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	cmd.Flags().Uint64Var(&ask.Number, "to", 0, "go back to swap `N` of the history")
	return cmd
}

func policyUnloadCommand() *cobra.Command {
	var address adminTarget
	cmd := &cobra.Command{
		Use:     "unload NAME [--admin ADDR]",
		Short:   "Forget the modules of a name",
		Example: `  engine policy unload mine`,
		Args:    takes(1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyUnload(cmd.Context(), address, args[0], s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &address)
	return cmd
}
