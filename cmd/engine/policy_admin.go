package main

import (
	"github.com/spf13/cobra"
)

// policyCommands are the commands that talk to a running instance.
func policyCommands() []*cobra.Command {
	return []*cobra.Command{policyLoadCommand(), policyListCommand(), policyRollbackCommand()}
}

// loadOptions are the flags of `engine policy load`.
type loadOptions struct {
	admin    string
	source   string // a file, or builtin:NAME
	config   string // JSON
	activate bool
}

func policyLoadCommand() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load FILE|NAME [--config JSON] [--activate] [--admin ADDR]",
		Short: "Give a module to a running instance",
		Long: `
Sends a module to a running instance, which checks, meters, compiles and tries it. With --activate
it then decides from the next step on; nothing is dropped. NAME is builtin:fcfs, builtin:sjf-aging
or a [policies.NAME] of the instance's file. A module that does not pass changes nothing.`,
		Example: `  engine policy load mine.wasm --activate
  engine policy load builtin:sjf-aging --activate --config '{"aging_tokens_per_s":50}'`,
		Args: takes(1, "FILE|NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.source = args[0]
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyLoad(cmd.Context(), o, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &o.admin)
	cmd.Flags().StringVar(&o.config, "config", "", "`JSON` given to the module's pol_init")
	cmd.Flags().BoolVar(&o.activate, "activate", false, "let it decide from the next step on")
	return cmd
}

func policyListCommand() *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list [--json] [--admin ADDR]",
		Short:   "The modules of a running instance",
		Example: `  engine policy list`,
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyList(cmd.Context(), admin, asJSON, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of a table")
	return cmd
}

func policyRollbackCommand() *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "rollback [NAME@VERSION] [--admin ADDR]",
		Short: "Let the policy before decide again",
		Example: `  engine policy rollback
  engine policy rollback builtin:fcfs`,
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) == 1 {
				to = args[0]
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return policyRollback(cmd.Context(), admin, to, s)
		},
		Annotations: map[string]string{exits: "1 2 69"},
	}
	adminFlag(cmd, &admin)
	return cmd
}
