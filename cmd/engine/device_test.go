package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/gpu/cpu"
	"github.com/kvrelay/engine/gpu/cuda"
)

// TestCheckDevice: what this binary or this machine lacks of a file is found by the check, at its
// line and in the words that serve has for it. A router asks for no device.
func TestCheckDevice(t *testing.T) {
	files := map[string]string{}
	if !cuda.Built() {
		files["built without CUDA"] = "[backend]\nkind = \"cuda\"\n"
	}
	if _, err := cpu.Check(cpu.Options{ISA: cpu.AMX, TDP: true}); err != nil {
		files["lacks the instructions"] = "[backend]\nisa = \"amx\"\nnumerics = \"tdp\"\n"
	}
	for want, text := range files {
		file := filepath.Join(t.TempDir(), "engine.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		checked := invoke(t, "", "config", "check", "-c", file)
		if checked.code != exitConfig || !strings.Contains(checked.err, "E423") ||
			!strings.Contains(checked.err, want) || !strings.Contains(checked.err, "^ ") {
			t.Errorf("the check says %+v", checked)
		}
		_, words, _ := strings.Cut(checked.err, "^ ")
		words, _, _ = strings.Cut(words, "\n")
		if served := invoke(t, "", "serve", "-c", file); served.code == 0 ||
			!strings.Contains(served.err, words) {
			t.Errorf("serve says %+v, the check %q", served, words)
		}
		front := text + "[node]\nrole = \"router\"\n[[router.decode]]\nname = \"d0\"\n" +
			"url = \"http://127.0.0.1:1\"\n[[router.prefill]]\nname = \"p0\"\n" +
			"url = \"http://127.0.0.1:2\"\n"
		if err := os.WriteFile(file, []byte(front), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, "", "config", "check", "-c", file); got.code != 0 ||
			!strings.Contains(got.out, "a router computes nothing") {
			t.Errorf("a router: %+v", got)
		}
	}
	file := filepath.Join(t.TempDir(), "engine.toml")
	if err := os.WriteFile(file, []byte("[backend]\nthreads = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "", "config", "check", "-c", file)
	if got.code != 0 || !strings.Contains(got.out, "device        cpu ") ||
		!strings.Contains(got.out, ", 3 threads") {
		t.Errorf("%+v", got)
	}
}

// TestIdleActivations: activations in bf16 that no weights of the model meet are told by the check
// and by serve, with the class that results, and by neither where they matter.
func TestIdleActivations(t *testing.T) {
	for dtype, wants := range map[string]string{
		"f32": "numerics class is fma", "bf16": "",
	} {
		text := fmt.Sprintf("[model]\ndtype = %q\n[backend]\nactivations = \"bf16\"\n"+
			"[node]\nrole = \"all\"\n", dtype)
		n := prepareNode(t, text)
		const does = "does nothing: this model has no weights in bf16"
		got := invoke(t, "", "config", "check", "-c", n.file)
		if got.code != 0 || strings.Contains(got.out, does) != (wants != "") ||
			!strings.Contains(got.out, wants) {
			t.Errorf("%s: %+v", dtype, got)
		}
		n.process = launch(t, "serve", "-c", n.file, "--until-eof")
		n.awaitReady()
		n.stop()
		if said := n.process.err.String(); strings.Contains(said, does) != (wants != "") ||
			!strings.Contains(said, wants) {
			t.Errorf("%s: serve says %s", dtype, said)
		}
	}
}
