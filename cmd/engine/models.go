package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/hub"
)

func modelsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models [--json]",
		Short: "List the models on this machine",
		Long: `
Lists the models in the hub's cache, whoever fetched them: each commit with the branches and tags
that stood at it, its size, and its folder. Of some only a part may be here, or only files that an
engine does not read; the state says so.`,
		Example: `  engine models
  engine models --json | jq -r '.[] | select(.missing == []) | .name'`,
		Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := hubSettings()
			if err != nil {
				return err
			}
			list, err := hub.Cache{Folder: settings.Cache}.List()
			if err != nil {
				return err
			}
			s := streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
			if asJSON {
				shown := []modelLine{}
				for _, one := range list {
					shown = append(shown, shownModel(one))
				}
				return json.NewEncoder(s.out).Encode(shown)
			}
			return listModels(list, settings.Cache, s)
		},
		Annotations: map[string]string{exits: "1 2"},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON document instead of text")
	return cmd
}

// modelLine is one snapshot as --json shows it.
type modelLine struct {
	Name     string   `json:"name"`
	Revision string   `json:"revision"` // commit
	Refs     []string `json:"refs"`
	Size     int64    `json:"size"` // bytes
	Path     string   `json:"path"`
	Missing  []string `json:"missing"`
	GGUF     []string `json:"gguf"`
}

func shownModel(s hub.Snapshot) modelLine {
	return modelLine{s.Model, s.Commit, orNone(s.Refs), s.Size, s.Path, orNone(s.Missing),
		orNone(s.GGUF)}
}

// orNone makes a list that JSON shows as [] and not as null.
func orNone(list []string) []string { return append([]string{}, list...) }

func listModels(list []hub.Snapshot, cache string, s streams) error {
	if len(list) == 0 {
		_, err := fmt.Fprintf(s.out, "no models in %s; the embedded one needs no file\n"+
			"next: engine pull ORG/NAME\n", cache)
		return err
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tREVISION\tSIZE\tSTATE\tPATH")
	for _, one := range list {
		names := append(orNone(one.Refs), one.Commit[:min(7, len(one.Commit))])
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", one.Model, strings.Join(names, " "),
			size(int(one.Size)), modelState(one), one.Path)
	}
	return w.Flush()
}

// modelState says whether an engine can load it.
func modelState(s hub.Snapshot) string {
	switch {
	case len(s.Missing) == 0:
		return "ready"
	case len(s.GGUF) > 0:
		return "GGUF"
	case len(s.Missing) == 1:
		return "no " + s.Missing[0]
	}
	return fmt.Sprintf("no %s and %d more", s.Missing[0], len(s.Missing)-1)
}
