package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func configShowCommand() *cobra.Command {
	var file string
	var effective bool
	cmd := &cobra.Command{
		Use:   "show [-c FILE] [--effective]",
		Short: "Every key with its value, and what \"auto\" became",
		Long: `
Prints the whole configuration as a valid file: the file's values, the defaults for the rest, and
in comments what "auto" became and which values differ from the defaults. With --effective the
comments say where each value comes from: FILE:LINE, an environment variable, or the default.`,
		Example: `  engine config show -c engine.toml
  engine config show | grep threads
  ENGINE__KV_CACHE__MEMORY=4GiB engine config show --effective`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, notes, err := loadConfig(file)
			if err != nil {
				return err
			}
			config.Report(cmd.ErrOrStderr(), notes)
			show := config.Show
			if effective {
				show = config.ShowEffective
			}
			show(cmd.OutOrStdout(), cfg, becameOf(cfg))
			return nil
		},
		Annotations: map[string]string{exits: "2 78"},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&effective, "effective", false, "say where each value comes from")
	return cmd
}
