package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// given refuses flags with an empty value, such as that of an unset variable: leaving a flag out
// means something, and something else than its value in silence would.
func given(cmd *cobra.Command) error {
	for _, f := range visited(cmd.Flags().Visit) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
			empty = slices.Equal(list.GetSlice(), []string{""}) || len(list.GetSlice()) == 0
		}
		if empty {
			return usageError("--%s is empty: give it a value or leave it out; see `%s --help`",
				f.Name, cmd.CommandPath())
		}
	}
	return nil
}

// visited lists what a walk visits.
func visited[T any](walk func(func(T))) (all []T) {
	walk(func(one T) { all = append(all, one) })
	return all
}

// flagWords says what is wrong with a flag in words of ours where the library's are a function's.
func flagWords(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	words := fmt.Sprintf("%q is no number", number.Num)
	switch {
	case errors.Is(err, strconv.ErrRange):
		words = number.Num + " is out of range"
	case number.Func == "ParseUint" && strings.HasPrefix(number.Num, "-"):
		words = number.Num + " is negative"
	case number.Func == "ParseBool":
		words = fmt.Sprintf("%q is neither true nor false", number.Num)
	case number.Func != "ParseFloat":
		words = fmt.Sprintf("%q is no whole number", number.Num)
	}
	return errors.New(strings.Replace(err.Error(), number.Error(), words, 1))
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
