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
		return usageError("%w; see `%s --help`", flagWords(err), cmd.CommandPath())
	})
	each(root, func(cmd *cobra.Command) {
		if cmd.HasSubCommands() && cmd.RunE == nil {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, group
		}
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if err := given(cmd); err != nil {
					return err
				}
				return check(cmd, args)
			}
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
