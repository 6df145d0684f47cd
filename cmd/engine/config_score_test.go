package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScorePolicyInConfig compiles the expression of a file, and points at what is wrong in
// another.
func TestScorePolicyInConfig(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "engine.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("[policy]\nactive = \"mine\"\n[policies.mine]\n" +
		"score = \"remaining_prefill - 200*age_s - 1000*priority\"\n" +
		"chunk = \"min(1024, budget)\"\n")
	cfg, _, err := loadConfig(good)
	if err != nil {
		t.Fatal(err)
	}
	lines, problems := checkPolicies(t.Context(), cfg)
	if len(problems) != 0 || len(lines) != 1 || !strings.Contains(lines[0], "mine · score rem") {
		t.Errorf("%q %+v", lines, problems)
	}
	spec, err := namedPolicy(cfg, "mine")
	if err != nil || len(spec.Wasm) < 1000 || spec.Limits.Fuel < 2_000_000 {
		t.Errorf("%d bytes, fuel %d, %v", len(spec.Wasm), spec.Limits.Fuel, err)
	}
	bad := write("[policies.mine]\nscore = \"priority - 200*age\"\n")
	if cfg, _, err = loadConfig(bad); err != nil {
		t.Fatal(err)
	}
	_, problems = checkPolicies(t.Context(), cfg)
	if len(problems) != 1 {
		t.Fatalf("%+v", problems)
	}
	p := problems[0]
	if p.Code != "E404" || p.Line != 2 || p.Column != 25 || p.Span != 3 ||
		!strings.Contains(p.Label, "did you mean age_s") {
		t.Errorf("%+v\n%s", p, p)
	}
}
