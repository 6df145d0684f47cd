package policyfile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Dirs is where a build happens; absolute paths.
type Dirs struct {
	Source string // The policy's folder.
	SDK    string // abi/guest: {sdk}.
	Out    string // The module to write: {out}.
	Tmp    string // A folder for what is in between: {tmp}.
}

// Missing says of each tool that is absent or of another version what is wrong and how to install
// it; none: a build gives the shipped module's bytes.
func (b Build) Missing(ctx context.Context) []string {
	var missing []string
	for _, tool := range b.Tools {
		run := exec.CommandContext(ctx, tool.Command[0], tool.Command[1:]...)
		printed, err := run.CombinedOutput()
		if err == nil && strings.Contains(string(printed), tool.Version) {
			continue
		}
		is, _, _ := strings.Cut(string(printed), "\n")
		if err != nil {
			is = err.Error()
		}
		missing = append(missing, fmt.Sprintf("want %s, have %s; install it by: %s",
			tool.Version, is, tool.Install))
	}
	return missing
}

// Run runs the commands. The error of a failed one carries what it printed.
func (b Build) Run(ctx context.Context, d Dirs) error {
	names := strings.NewReplacer("{sdk}", d.SDK, "{out}", d.Out, "{tmp}", d.Tmp)
	for _, command := range b.Commands {
		words := make([]string, len(command))
		for i, word := range command {
			words[i] = names.Replace(word)
		}
		run := exec.CommandContext(ctx, words[0], words[1:]...)
		run.Dir = d.Source
		run.Env = append(os.Environ(), "LC_ALL=C")
		if printed, err := run.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, printed)
		}
	}
	return nil
}
