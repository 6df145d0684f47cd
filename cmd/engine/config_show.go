package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func configShowCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "show [-c FILE]",
		Short: "Every key with its value, and what \"auto\" became",
		Long: `
Prints the whole configuration as a valid file: the file's values, the defaults for the rest, and
in comments what "auto" became and which values differ from the defaults.`,
		Example: `  engine config show -c engine.toml
  engine config show | grep threads`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, notes, err := loadConfig(file)
			if err != nil {
				return err
			}
			config.Report(cmd.ErrOrStderr(), notes)
			config.Show(cmd.OutOrStdout(), cfg, becameOf(cfg))
			return nil
		},
		Annotations: map[string]string{exits: "2 78"},
	}
	fileFlag(cmd, &file)
	return cmd
}
