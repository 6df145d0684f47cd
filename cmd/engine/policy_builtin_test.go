package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins/builtin"
)

// TestBuiltinPolicies: each shipped policy has its line, for people and as JSON, and can be named
// in a configuration.
func TestBuiltinPolicies(t *testing.T) {
	got := invoke(t, "", "policy", "list", "--builtin")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	names := builtin.Names()
	if got.code != 0 || len(lines) != len(names)+1 {
		t.Fatalf("code %d: %s%s", got.code, got.out, got.err)
	}
	var list []shippedPolicy
	text := invoke(t, "", "policy", "list", "--builtin", "--json").out
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != len(names) {
		t.Fatalf("%v: %s", err, text)
	}
	for i, name := range names {
		fields := strings.Fields(lines[i+1])
		if len(fields) < 8 || fields[0] != "builtin:"+name || list[i].Name != fields[0] {
			t.Errorf("%s: %q, %+v", name, lines[i+1], list[i])
		}
		if config.Builtins()[i] != "builtin:"+name {
			t.Errorf("a configuration calls it %s", config.Builtins()[i])
		}
		mine := config.PolicyModule{Name: "mine", Path: "builtin:" + name}
		cfg := &config.Config{Policies: []config.PolicyModule{mine}}
		spec, err := namedPolicy(cfg, "mine")
		if module, _ := builtin.Module(name); err != nil || string(spec.Wasm) != string(module) {
			t.Errorf("path = \"builtin:%s\": %v", name, err)
		}
	}
}
