package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kvrelay/engine/plugins/builtin"
	"github.com/kvrelay/engine/plugins/policyfile"
)

// shippedPolicy is one line of engine policy list --builtin.
type shippedPolicy struct {
	Name    string `json:"name"` // as policy.active takes it
	Version string `json:"version"`
	Lang    string `json:"lang"`
	Summary string `json:"summary"`
}

// listBuiltins prints the policies that the binary ships, with one line each.
func listBuiltins(out io.Writer, asJSON bool) error {
	var list []shippedPolicy
	for _, name := range builtin.Names() {
		text, _ := builtin.About(name)
		file, err := policyfile.Parse(string(text))
		if err != nil {
			return fmt.Errorf("built-in policy %s: %w", name, err)
		}
		list = append(list, shippedPolicy{"builtin:" + name, file.Version, file.Lang, file.Summary})
	}
	if asJSON {
		return json.NewEncoder(out).Encode(list)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVER\tLANGUAGE\tWHAT IT DOES")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.Version, p.Lang, p.Summary)
	}
	return w.Flush()
}
