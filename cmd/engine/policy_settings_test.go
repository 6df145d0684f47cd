package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/plugins/authortools"
)

// TestPolicySettings: settings that a module's own schema refuses are an error that names the key,
// wherever they are given.
func TestPolicySettings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "engine.toml")
	text := "[policy]\nactive = \"mine\"\n[policies.mine]\npath = \"builtin:sjf-aging\"\n" +
		"config = { aging_tokens_per_s = -5, agin = 3 }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := invoke(t, "", "config", "check", "-c", file)
	for _, want := range []string{`error[E405]: policy "mine" does not take these settings`,
		file + ":5:", "config = { aging_tokens_per_s = -5, agin = 3 }"} {
		if r.code != 78 || !strings.Contains(r.err, want) {
			t.Errorf("%q is missing: %v", want, r)
		}
	}
	both := strings.Contains(r.err, "agin: the policy has no such setting") &&
		strings.Contains(r.err, "aging_tokens_per_s: minimum: got -5, want 0")
	if !both {
		t.Errorf("not both mistakes are named: %v", r)
	}
	r = invoke(t, "", "policy", "check", "builtin:sjf-aging", "--config", `{"agin":1}`)
	if r.code != 1 || !strings.Contains(r.err,
		"error[P035]: config: agin: the policy has no such setting") {
		t.Error(r)
	}
	r = invoke(t, "", "policy", "check", "builtin:sjf-aging")
	if r.code != 0 || !strings.Contains(r.out, "config       matches the schema") {
		t.Error(r)
	}
	n := serveNode(t, "")
	r = invoke(t, "", "policy", "load", "builtin:sjf-aging", "--config", `{"agin":1}`, "--activate",
		"--admin", n.admin)
	if r.code != 1 || !strings.Contains(r.err, "agin: the policy has no such setting") {
		t.Error(r)
	}
}

// TestPolicyReasons: inspect tells what a policy can be told, and what its reasons mean.
func TestPolicyReasons(t *testing.T) {
	r := invoke(t, "", "policy", "inspect", "builtin:slo-chunk")
	for _, want := range []string{"setting      target_ms  int, default 50, 1 to 60000",
		"reason 1     cut short for the running streams"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%q is missing: %v", want, r)
		}
	}
}

// TestBenchRemembers: a run is compared with the one before of the same file.
func TestBenchRemembers(t *testing.T) {
	for _, name := range []string{"XDG_CACHE_HOME", "CACHE_DIRECTORY"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	args := []string{"policy", "bench", "builtin:fcfs", "--each", "5ms"}
	if r := invoke(t, "", args...); r.code != 0 || strings.Contains(r.out, "last run") {
		t.Error(r)
	}
	r := invoke(t, "", args...)
	if r.code != 0 || !strings.Contains(r.out, "last run ") || !strings.Contains(r.out, "· fuel ") {
		t.Error(r)
	}
	before := []authortools.Row{{Waiting: 10, P50: 100, Fuel50: 1000},
		{Waiting: 11, P50: 1, Fuel50: 1}}
	now := []authortools.Row{{Waiting: 10, P50: 86, Fuel50: 1000}}
	if got := difference(before, now); got != "p50 -14 % · fuel +0.0 %" {
		t.Error(got)
	}
	if got := difference(before, nil); got != "" {
		t.Error(got)
	}
}

// TestPoliciesTogether: two modules that cannot share the work are told of before serving.
func TestPoliciesTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.toml")
	for chunk, code := range map[string]int{"builtin:sarathi": 0, "builtin:vtc": 78} {
		text := "[policy]\nselect = \"builtin:fcfs\"\nchunk = \"" + chunk + "\"\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := invoke(t, "", "config", "check", "-c", file)
		if r.code != code || code != 0 && (!strings.Contains(r.err, "error[E406]") ||
			!strings.Contains(r.err, file+":3:9") ||
			!strings.Contains(r.err, "builtin:vtc@1.0.0 cannot be used as chunk")) {
			t.Errorf("%s: %v", chunk, r)
		}
	}
}
