package main

import "github.com/spf13/cobra"

// adminFlag is --admin, which every command has that talks to a running instance.
func adminFlag(cmd *cobra.Command, target *adminTarget) {
	cmd.Flags().StringVar(&target.address, "admin", "",
		"`ADDR`: host:port or unix:PATH; default: the one socket there is")
	timeoutFlag(cmd, target)
}

func timeoutFlag(cmd *cobra.Command, target *adminTarget) {
	cmd.Flags().DurationVar(&target.timeout, "timeout", adminSilence,
		"give up an instance that is silent for `TIME`")
}

func reloadCommand() *cobra.Command {
	var admin adminTarget
	cmd := &cobra.Command{
		Use:   "reload [--admin ADDR]",
		Short: "Read the file again and apply what can be applied",
		Long: `
Tells a running instance to read its file again. Each changed key is printed, either applied or
with "needs a restart", as is a token_budget above the one that the instance started with. Streams
go on; policies change between two steps. A file in which "engine config check" finds an error in
anything but the model changes nothing: the errors are printed, the running configuration stays.`,
		Example: `  engine reload
  engine reload --admin unix:/run/user/1000/engine/p0.sock`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			return reload(cmd.Context(), admin, s)
		},
		Annotations: map[string]string{exits: "1 2 69 78"},
	}
	adminFlag(cmd, &admin)
	return cmd
}
