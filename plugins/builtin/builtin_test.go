package builtin

import (
	"bytes"
	"slices"
	"testing"
)

func TestModules(t *testing.T) {
	names := Names()
	for _, want := range []string{
		"edf-relegate", "fcfs", "prefix-affinity", "priority", "sarathi", "send-aware", "sjf-aging",
		"slo-chunk", "tenant-quota", "vtc",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%q is not among %q", want, names)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("%q is not sorted", names)
	}
	exports := []string{"memory", "pol_abi_v1", "pol_buffer", "pol_init", "pol_decide"}
	for _, name := range names {
		module, ok := Module(name)
		if !ok || !bytes.HasPrefix(module, []byte("\x00asm\x01\x00\x00\x00")) {
			t.Errorf("%s: no module", name)
		}
		about, ok := About(name)
		if !ok || !bytes.Contains(about, []byte(`name = "`+name+`"`)) {
			t.Errorf("%s: nothing is said about it", name)
		}
		for _, export := range exports {
			if !bytes.Contains(module, []byte(export)) {
				t.Errorf("%s: does not export %s", name, export)
			}
		}
	}
	for _, name := range []string{"", "nothing", "../builtin/fcfs", "fcfs.wasm"} {
		if _, ok := Module(name); ok {
			t.Errorf("there is a module %q", name)
		}
		if _, ok := About(name); ok {
			t.Errorf("there is a policy.toml of %q", name)
		}
	}
}
