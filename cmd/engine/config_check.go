package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
)

func configCheckCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Find everything wrong with a file, without starting anything",
		Long: `
Checks a file as "engine serve" would: its syntax, keys and values, the policy modules that it
names, the model's folder, and that this binary and this machine have the device. All problems are
reported in one run, each with its line and column, what is wrong and what to write instead.`,
		Example: `  engine config check -c engine.toml && engine serve -c engine.toml`,
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError("config check needs -c FILE")
			}
			cfg, problems := config.Inspect(file)
			if config.Failed(problems) {
				return badConfig(checkRest(cmd.Context(), cfg, problems))
			}
			return checkFile(cmd.Context(), cmd.OutOrStdout(), cfg, problems)
		},
		Annotations: map[string]string{exits: "2 78"},
	}
	fileFlag(cmd, &file)
	return cmd
}

// checkRest adds to the problems of a file what is wrong with what it points to: all is seen in one
// run. A line that is wrong already is not judged twice.
func checkRest(ctx context.Context, cfg *config.Config, found []config.Problem) []config.Problem {
	if cfg == nil {
		return found
	}
	_, more := checkPolicies(ctx, cfg)
	_, modelProblems := checkModel(cfg)
	_, deviceProblems := checkDevice(cfg)
	more = append(append(more, modelProblems...), deviceProblems...)
	more = append(more, checkCertificate(cfg)...)
	more = append(more, checkFolders(cfg)...)
	all := slices.Clone(found)
	for _, p := range more {
		known := func(q config.Problem) bool { return q.Line == p.Line }
		if p.Line > 0 && !slices.ContainsFunc(found, known) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, byLine)
	return all
}

func byLine(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) }

// checkCertificate says what is wrong with the certificate, if there is to be one.
func checkCertificate(cfg *config.Config) []config.Problem {
	files := cfg.API.TLS
	if files.CertFile == "" || files.KeyFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile); err != nil {
		return []config.Problem{badCertificate(cfg, err)}
	}
	return nil
}

// checkFile goes on where config.Load ends: at what the file points to. Each line is printed once
// its part is known to be right.
func checkFile(ctx context.Context, w io.Writer, cfg *config.Config, notes []config.Problem) error {
	tick(w, "syntax", plural(cfg.Lines(), "line"))
	tick(w, "keys", fmt.Sprintf("%d set, 0 unknown", cfg.KeysSet()))
	values := "in range"
	if len(notes) > 0 {
		values = plural(len(notes), "note")
	}
	tick(w, "values", values)

	policies, problems := checkPolicies(ctx, cfg)
	for _, line := range policies {
		tick(w, "policy", line)
	}
	modelLine, modelProblems := checkModel(cfg)
	problems = append(append(problems, modelProblems...), checkFolders(cfg)...)
	if modelProblems == nil {
		tick(w, "model", modelLine)
	}
	device, bad := checkDevice(cfg)
	if problems = append(problems, bad...); bad == nil {
		device.print(w, "device")
	}
	if files := cfg.API.TLS; files.CertFile != "" {
		bad = checkCertificate(cfg)
		if problems = append(problems, bad...); bad == nil {
			tick(w, "certificate", files.CertFile+" with its key")
		}
	}
	if cfg.Auth.Mode == config.AuthKeys {
		tick(w, "access", plural(len(cfg.Keys), "key")+" in "+cfg.Auth.KeysFile)
	}
	for _, note := range notes {
		fmt.Fprint(w, note.String())
	}
	if len(problems) > 0 {
		slices.SortStableFunc(problems, byLine)
		return badConfig(problems)
	}
	valid := cfg.File() + " is valid"
	_, err := fmt.Fprintf(w, "✓ %s%*s\n", valid, max(4, 90-len(valid)),
		"next: engine serve -c "+cfg.File())
	return err
}

func tick(w io.Writer, name, text string) { fmt.Fprintf(w, "✓ %-13s %s\n", name, text) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size shows bytes to people.
func size(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
