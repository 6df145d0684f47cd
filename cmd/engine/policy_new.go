package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/plugins/authortools"
)

func policyNewCommand() *cobra.Command {
	var lang string
	cmd := &cobra.Command{
		Use:   "new NAME --lang LANG",
		Short: "Start a policy in a folder of its own",
		Long: `
Makes the folder NAME with a policy that builds and passes its tests, test cases, settings, and the
SDK for its language. Everything comes from this binary: no network is needed. LANG is c, rust, go,
as (AssemblyScript), zig or wat (WebAssembly text). NAME may have a folder before it.`,
		Example: `  engine policy new sjf --lang c
  cd sjf && engine policy build && engine policy test`,
		Args: takes(1, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if lang == "" {
				return usageError("policy new needs --lang: c, rust, go, as, zig or wat")
			}
			l, err := authortools.FindLanguage(lang)
			if err != nil {
				return usageError("%v", err)
			}
			dir := filepath.Clean(args[0])
			if err := authortools.Create(dir, filepath.Base(dir), l); err != nil {
				return err
			}
			return tellNew(cmd, dir, l)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().StringVar(&lang, "lang", "", "`LANG`uage: c, rust, go, as, zig or wat")
	return cmd
}

// tellNew says what was made, whether its compiler is there, and what to type next.
func tellNew(cmd *cobra.Command, dir string, l authortools.Language) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "created %s   %s  policy.toml  policy.schema.json  tests/*.toml  README.md  "+
		"sdk/\n", dir, l.Source)
	full, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	var missing *authortools.MissingTool
	tool, err := authortools.FindTool(cmd.Context(), l.Tool, full)
	next := "engine policy build && engine policy test"
	switch {
	case errors.As(err, &missing):
		fmt.Fprintln(out, missing.What)
		if strings.HasPrefix(missing.Install, "see ") {
			fmt.Fprintln(out, missing.Install)
		} else {
			next = missing.Install + " && " + next
		}
	case err != nil:
		return err
	default:
		fmt.Fprintf(out, "%s found\n", tool.Version)
	}
	_, err = fmt.Fprintf(out, "next:  cd %s && %s\n", dir, next)
	return err
}
