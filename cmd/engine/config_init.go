package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func configInitCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "init [--role ROLE] [FILE]",
		Short: "Write a commented file",
		Long: `
Writes a TOML file: without --role every key with its default and what it means, with --role a
short file for that role. The files of prefill, decode and router work together on one machine as
they are. Without FILE it goes to stdout. A file that exists is never overwritten.`,
		Example: `  engine config init engine.toml
  engine config init --role router router.toml`,
		Args: takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch config.Role(role) {
			case "", config.RoleAll, config.RolePrefill, config.RoleDecode, config.RoleRouter:
			default:
				return usageError("--role %q: one of all, prefill, decode, router", role)
			}
			text := config.Example(config.Role(role))
			if len(args) == 0 {
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			if err := writeNew(args[0], text); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s%54s\n", args[0],
				"next: engine serve -c "+args[0])
			return err
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&role, "role", "", "`ROLE`: all, prefill, decode or router")
	return cmd
}

// writeNew writes a file that is not there yet.
func writeNew(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; write elsewhere or remove it first", name)
	}
	if err != nil {
		return fmt.Errorf("write the file: %w", err)
	}
	if _, err := io.WriteString(f, text); err != nil {
		f.Close()
		return fmt.Errorf("write the file: %w", err)
	}
	return f.Close()
}
