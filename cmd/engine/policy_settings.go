package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins"
	"github.com/kvrelay/engine/plugins/authortools"
	"github.com/kvrelay/engine/plugins/builtin"
	"github.com/kvrelay/engine/plugins/policyfile"
)

// codeSettings is what engine policy check calls settings that the module's own schema refuses.
const codeSettings = "P035"

// moduleSchema is the JSON schema of a module's settings, of a file or a shipped one; nil where
// there is none.
func moduleSchema(module string) ([]byte, error) {
	if strings.HasSuffix(module, ".wasm") {
		schema, from, err := authortools.FindSchema(module)
		if err != nil {
			return nil, fmt.Errorf("read the schema of its settings, %s: %w", from, err)
		}
		return schema, nil
	}
	about, err := moduleAbout(module)
	if err != nil || about == nil {
		return nil, err
	}
	return authortools.Schema(about), nil
}

// moduleAbout is the policy.toml of a shipped module, or the one beside a file; nil where there is
// none.
func moduleAbout(module string) (*policyfile.File, error) {
	if short, ok := strings.CutPrefix(module, "builtin:"); ok {
		text, ok := builtin.About(short)
		if !ok {
			return nil, nil
		}
		return policyfile.Parse(string(text))
	}
	dir, base := filepath.Split(module)
	file, err := policyfile.Read(filepath.Join(dir, "policy.toml"))
	if errors.Is(err, fs.ErrNotExist) || err == nil && file.Name+".wasm" != base {
		return nil, nil
	}
	return file, err
}

// aboutFacts are what can be set, and what reasons mean.
func aboutFacts(f *policyfile.File) []authortools.Fact {
	if f == nil {
		return nil
	}
	facts := []authortools.Fact{{Name: "summary", Text: f.Summary}}
	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		s := f.Settings[name]
		text := fmt.Sprintf("%s  %s, default %v", name, s.Type, s.Default)
		if s.Min != nil {
			text += fmt.Sprintf(", %d to %d", *s.Min, *s.Max)
		}
		facts = append(facts, authortools.Fact{Name: "setting", Text: text})
	}
	numbers := slices.Collect(maps.Keys(f.Reasons))
	slices.SortFunc(numbers, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	for _, n := range numbers {
		facts = append(facts, authortools.Fact{Name: "reason " + n, Text: f.Reasons[n]})
	}
	return facts
}

// wrongSettings says what is wrong with a module's settings by its own schema.
func wrongSettings(module string, settings []byte) ([]authortools.Mistake, error) {
	schema, err := moduleSchema(module)
	if err != nil || schema == nil {
		return nil, err
	}
	return authortools.CheckSettings(schema, settings)
}

// settingsError is all of that as one error, nil if nothing is wrong.
func settingsError(module string, settings []byte) error {
	bad, err := wrongSettings(module, settings)
	if err != nil || len(bad) == 0 {
		return err
	}
	var all []error
	for _, m := range bad {
		all = append(all, fmt.Errorf("config: %w", m))
	}
	return errors.Join(all...)
}

// settingsProblem points at the key of a configuration file.
func settingsProblem(
	cfg *config.Config, p config.PolicyModule, bad []authortools.Mistake, err error,
) *config.Problem {
	full := "policies." + p.Name + ".config"
	if err != nil {
		wrong := cfg.At("policies." + p.Name + ".path")
		wrong.Code, wrong.Label = "E401", err.Error()
		wrong.Message = fmt.Sprintf("the settings of policy %q cannot be checked", p.Name)
		return &wrong
	}
	first := bad[0]
	wrong := cfg.At(full)
	if first.Key != "" {
		if at := cfg.At(full + "." + first.Key); at.Line > 0 {
			wrong = at
		}
	}
	if wrong.Line == 0 {
		wrong = cfg.At("policies." + p.Name + ".path")
	}
	wrong.Code, wrong.Label = "E405", first.Error()
	wrong.Message = fmt.Sprintf("policy %q does not take these settings", p.Name)
	for _, m := range bad[1:] {
		wrong.Help = append(wrong.Help, "also "+m.Error())
	}
	return &wrong
}

// addSettings adds to a report what is wrong with the settings.
func addSettings(r *plugins.Report, module string, settings []byte) error {
	schema, err := moduleSchema(module)
	if err != nil || schema == nil {
		return err
	}
	bad, err := authortools.CheckSettings(schema, settings)
	if err != nil {
		return err
	}
	for _, m := range bad {
		r.Problems = append(r.Problems, plugins.Problem{Code: codeSettings,
			Text: "config: " + m.Error()})
	}
	if len(bad) == 0 {
		r.Lines = append(r.Lines, plugins.Line{Name: "config",
			Text: "matches the schema of its settings"})
	}
	return nil
}
