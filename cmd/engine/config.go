package main

import (
	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write, check and show the TOML file",
		Long: `
One TOML file configures an instance. Every key has a default; an empty file, and no file at all,
is a single process with the embedded model on loopback. Unknown keys are errors.`,
		Example: `  engine config init engine.toml
  engine config check -c engine.toml
  engine config show -c engine.toml`,
	}
	cmd.AddCommand(configInitCommand(), configCheckCommand(), configShowCommand())
	return cmd
}

// fileFlag is -c, which every command has that reads a file.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "", "TOML `FILE`; without it, the defaults")
}

// loadConfig reads and checks a file, or gives the defaults for "". Notes are returned beside the
// Config; an error prints them with the rest.
func loadConfig(file string) (*config.Config, []config.Problem, error) {
	cfg, problems := config.Load(file)
	if config.Failed(problems) {
		return nil, nil, badConfig(problems)
	}
	return cfg, problems, nil
}
