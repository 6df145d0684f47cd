package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/bench"
)

// TestBenchGate runs this program against itself, as another engine and as this one.
func TestBenchGate(t *testing.T) {
	t.Setenv(asEngine, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "", "bench", "gate", self, "--rounds", "2", "--least", "0.000001", "--",
		"-p", "16", "-n", "0", "--repeat", "1")
	if got.code != 0 || !strings.Contains(got.out, "pp16  tok/s  ") ||
		!strings.Contains(got.err, "100 % · 2 of 2 rounds") {
		t.Errorf("%+v", got)
	}
	got = invoke(t, "", "bench", "gate", self, "--", "--numerics", "none")
	if got.code != 1 || !strings.Contains(got.err, "one of: fma, tdp") {
		t.Errorf("the words of a binary that refuses its flags: %+v", got)
	}
	folder := t.TempDir()
	none := filepath.Join(folder, "none")
	got = invoke(t, "", "bench", "gate", none)
	if got.code != 1 || !strings.Contains(got.err, none) ||
		!strings.Contains(got.err, "name another engine's binary") {
		t.Errorf("no program: %+v", got)
	}
	t.Setenv(asPeer, folder) // Every argument is right, and nothing is saved.
	silent := filepath.Join(folder, "silent")
	if err := os.WriteFile(silent+".txt", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Symlink(self, silent) == nil {
		t.Setenv(asEngine, "")
		got = invoke(t, "", "bench", "gate", silent)
		if got.code != 1 || !strings.Contains(got.err, "silent: ended without a result") {
			t.Errorf("a program that is no engine: %+v", got)
		}
	}
	for want, args := range map[string]string{
		"needs BEFORE":        "",
		"gate needs BEFORE":   "-- -p 16",
		"follow --":           "a b",
		"--rounds is at":      "a --rounds 0",
		"file not found":      "no-such-engine",
		"unknown flag: --url": "a --url b",
	} {
		got := invoke(t, "", append([]string{"bench", "gate"}, strings.Fields(args)...)...)
		if got.code == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%q: %+v, want %q", args, got, want)
		}
	}
}

func TestBenchGateJudges(t *testing.T) {
	result := func(x float64) *bench.Result {
		return &bench.Result{Rows: []bench.Row{{Name: "pp16", Unit: "tok/s", Value: x}}}
	}
	var gate bench.Gate
	o, out := &benchGate{least: 0.9}, new(strings.Builder)
	if err := o.judge(&gate, out); err == nil || !strings.Contains(err.Error(), "in common") {
		t.Error(err)
	}
	gate.Add(result(10), result(8))
	if err := o.judge(&gate, out); err == nil || !strings.Contains(err.Error(), "pp16") {
		t.Error(err)
	}
	gate.Add(result(10), result(11))
	if err := o.judge(&gate, out); err != nil {
		t.Error(err)
	}
}
