package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpTemplate is the page of `engine help COMMAND`.
const helpTemplate = `{{with (or .Long .Short)}}{{wrap .}}

{{end}}Usage:
{{usageLines .}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}}   {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
{{- if .HasExample}}

Examples:
{{.Example | trimLeadingNewline}}{{end}}
{{- with exitLines .}}

Exit codes:
{{.}}{{end}}
`

// exits is the annotation that lists a command's exit codes beside 0.
const exits = "exits"

// exitWords says what each code means.
var exitWords = map[string]string{
	"0": "ok", "1": "failed", "2": "wrong usage", "69": "no instance reached",
	"75": "try again later", "78": "wrong configuration",
}

// usages is the annotation that replaces the usage line where there is more than one form.
const usages = "usages"

// dress gives every command of the tree the same manners: our help page, mistakes in flags and
// arguments as usage errors, no usage dump after an error.
func dress(root *cobra.Command) {
	cobra.AddTemplateFunc("wrap", wrap)
	cobra.AddTemplateFunc("trimLeadingNewline", func(s string) string {
		return strings.TrimPrefix(s, "\n")
	})
	cobra.AddTemplateFunc("exitLines", exitLines)
	cobra.AddTemplateFunc("usageLines", usageLines)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(helpTemplate)
	root.SetHelpCommand(helpCommand(root))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see `%s --help`", err, cmd.CommandPath())
	})
	each(root, func(cmd *cobra.Command) {
		if cmd.HasSubCommands() {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
		}
		cmd.SuggestionsMinimumDistance = 2
		cmd.DisableFlagsInUseLine = true
	})
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, kid := range cmd.Commands() {
		each(kid, do)
	}
}

// takes checks the number of arguments; need names those that must be there.
func takes(most int, need ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(need):
			return usageError("%s needs %s; see `%s --help`", cmd.CommandPath(),
				need[len(args)], cmd.CommandPath())
		case len(args) > most && most == 0:
			return usageError("%s takes no argument, got %q", cmd.CommandPath(), args[0])
		case len(args) > most:
			return usageError("%s takes one argument; put quotes around a text with spaces",
				cmd.CommandPath())
		}
		return nil
	}
}

// pageColumns is the width of the running text of a help page.
const pageColumns = 80

// wrap breaks each paragraph anew.
func wrap(text string) string {
	var out strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			out.WriteString("\n\n")
		}
		column := 0
		for _, word := range strings.Fields(paragraph) {
			width := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+width > pageColumns:
				out.WriteByte('\n')
				column = 0
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(word)
			column += width
		}
	}
	return out.String()
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

// usageLines are the forms of a command line.
func usageLines(cmd *cobra.Command) string {
	forms := []string{cmd.UseLine()}
	if text := cmd.Annotations[usages]; text != "" {
		forms = strings.Split(text, "\n")
	} else if cmd.HasAvailableSubCommands() {
		forms = []string{cmd.CommandPath() + " COMMAND"}
	}
	return "  " + strings.Join(forms, "\n  ")
}

// exitLines are the codes of a command, each with its meaning.
func exitLines(cmd *cobra.Command) string {
	var lines []string
	for _, code := range append([]string{"0"}, strings.Fields(cmd.Annotations[exits])...) {
		lines = append(lines, fmt.Sprintf("  %-3s %s", code, exitWords[code]))
	}
	if len(lines) == 1 {
		return ""
	}
	return strings.Join(slices.Compact(lines), "\n")
}
