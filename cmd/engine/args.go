package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// takes checks the number of arguments; need names those that must be there.
func takes(most int, need ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(need):
			return usageError("%s needs %s; see `%s --help`", cmd.CommandPath(),
				need[len(args)], cmd.CommandPath())
		case len(args) > most && most == 0:
			return usageError("%s takes no argument, got %q", cmd.CommandPath(), args[0])
		case len(args) > most && most > 1:
			return usageError("%s takes %d arguments, got %d", cmd.CommandPath(), most, len(args))
		case len(args) > most:
			return usageError("%s takes one argument; put quotes around a text with spaces",
				cmd.CommandPath())
		}
		return nil
	}
}

// group runs a command that only holds others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", near[0])
	}
	return usageError("%s has no command %q%s", cmd.CommandPath(), args[0], hint)
}

// helpCommand is `engine help COMMAND`, which refuses what there is no help for.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usageError("there is no help for %q", strings.Join(args, " "))
			}
			return cmd.Help()
		},
	}
}
