package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// guest is the name under which tests load modules, one after the other.
const guest = "guest"

// moduleFile is the path of a module that tests use.
func moduleFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "plugins", "testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// load gives a module's file to an instance and makes it decide, as an operator does.
func (n *node) load(t *testing.T, file string) result {
	t.Helper()
	wasm, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), guest+".wasm")
	if err := os.WriteFile(copied, wasm, 0o600); err != nil {
		t.Fatal(err)
	}
	return invoke(t, "", "policy", "load", copied, "--activate", "--admin", n.admin)
}

// activate makes a policy decide that the instance knows by name.
func (n *node) activate(t *testing.T, name string) result {
	t.Helper()
	return invoke(t, "", "policy", "load", name, "--activate", "--admin", n.admin)
}

// serves wants the golden tokens.
func (n *node) serves(t *testing.T, g goldenCase) {
	t.Helper()
	got := post(t, n.api+"/v1/completions", greedy.with(fields{"prompt": g.PromptIDs,
		"return_token_ids": true})).completion(t)
	if !slices.Equal(got.Choices[0].TokenIDs, g.GreedyIDs) {
		t.Errorf("tokens %v, want %v", got.Choices[0].TokenIDs, g.GreedyIDs)
	}
}

// faulty are the modules that pass the trial at load and go wrong in service, and how.
var faulty = []struct{ file, class string }{
	{"loop", "fuel"}, {"trap", "trap"}, {"garbage", "bad_output"}, {"memory_grab", "fuel"},
	{"memory_leak", "memory"}, {"recursion", "fuel"}, {"returns_error", "returned_error"},
	{"unknown_slot", "bad_output"}, {"fills", "fuel"},
}

// TestFaultyPolicies lets modules decide that loop, trap, answer garbage or take all the memory
// they get: serving goes on, the built-in policy decides those steps, and it shows.
func TestFaultyPolicies(t *testing.T) {
	n := serveNode(t, "")
	golden := embeddedGolden().cases(t)[0]
	for i, f := range faulty {
		if raced && i > 3 {
			break
		}
		t.Run(f.file, func(t *testing.T) {
			if r := n.load(t, moduleFile(t, f.file)); r.code != 0 {
				t.Fatal(r)
			}
			fault := []string{fmt.Sprintf("policy=%q", guest), fmt.Sprintf("class=%q", f.class)}
			before := n.metric("engine_policy_faults_total", fault...)
			fallbacks := n.metric("engine_policy_fallback_steps_total", fault[0])
			eventually(t, patience, func() error { // It is quiet in the instance's first second.
				if f.class == "memory" { // It takes a page a step, so it needs many steps in a row.
					post(t, n.api+"/v1/completions", song(1)).completion(t)
				} else {
					n.serves(t, golden)
				}
				if n.metric("engine_policy_faults_total", fault...) == before {
					return errors.New("it has not faulted")
				}
				return nil
			})
			for range 5 {
				n.serves(t, golden)
			}
			after := n.metric("engine_policy_fallback_steps_total", fault[0])
			if after <= fallbacks {
				t.Error("no step counts as decided by the built-in policy")
			}
			if log := n.err.String(); !strings.Contains(log, `"class":"`+f.class+`"`) {
				t.Errorf("the log does not say %q", f.class)
			}
			const limit = 16 << 20
			if used := n.metric("engine_policy_memory_bytes", fault[0]); used > limit {
				t.Errorf("the module has %v bytes of memory", used)
			}
			list := invoke(t, "", "policy", "list", "--admin", n.admin)
			if list.code != 0 || !strings.Contains(list.out, guest) {
				t.Error(list)
			}
			rest(t, n)
			if r := n.activate(t, "builtin:fcfs"); r.code != 0 {
				t.Error(r)
			}
		})
	}
	// The module that decides now has done nothing wrong.
	before := n.metric("engine_policy_fallback_steps_total")
	n.serves(t, golden)
	if after := n.metric("engine_policy_fallback_steps_total"); after != before {
		t.Errorf("%v steps of builtin:fcfs were decided by the fallback", after-before)
	}
	n.stop()
}

// TestEveryHostileModule gives every module to an instance that serves. Each is refused with a
// reason, or it decides and nobody notices.
func TestEveryHostileModule(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "plugins", "testdata", "*.wasm"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d modules: %v", len(files), err)
	}
	hostile(t, files, len(files)/6)
}

// TestModulesThatKillTheBareRuntime is the same with those that the shared data has.
func TestModulesThatKillTheBareRuntime(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t), "prototypes", "wasm", "bad", "*.wasm"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d modules: %v", len(files), err)
	}
	hostile(t, files, len(files))
}

// hostile loads modules one after the other, of which at least so many must be refused.
func hostile(t *testing.T, files []string, most int) {
	n := serveNode(t, "")
	golden := embeddedGolden().cases(t)[0]
	refused := 0
	for i, file := range files {
		if raced && i%5 != 0 {
			continue
		}
		name := filepath.Base(file)
		begun := time.Now()
		r := n.load(t, file)
		took := time.Since(begun)
		switch {
		case r.code == exitFailed && len(r.err) > len("error: ") && r.out == "":
			refused++
		case r.code != 0:
			t.Errorf("%s: exit %d: %s%s", name, r.code, r.out, r.err)
		}
		if took > soon {
			t.Errorf("%s took %v to load", name, took)
		}
		n.serves(t, golden)
	}
	if refused < most && !raced {
		t.Errorf("%d of %d modules were refused, want at least %d", refused, len(files), most)
	}
	const most64 = 700 << 20
	if used := n.metric("process_resident_memory_bytes"); used > most64 {
		t.Errorf("the instance uses %.0f MiB of memory", used/(1<<20))
	}
	rest(t, n)
	n.stop()
}

// TestModuleOfTheFile starts with a module that the TOML file names, and refuses to start with one
// that is not what the file says.
func TestModuleOfTheFile(t *testing.T) {
	module := moduleFile(t, "waiting_only")
	file := "[policy]\nactive = \"mine\"\n[policies.mine]\npath = %q\n%s"
	n := serveNode(t, fmt.Sprintf(file, module, ""))
	n.serves(t, embeddedGolden().cases(t)[0])
	r := get(t, n.api+"/v1/models")
	if r.status != http.StatusOK || !strings.Contains(n.out.String(), "policy     mine@1.0.0") {
		t.Errorf("%d\n%s", r.status, n.out)
	}
	n.stop()
	digest := fmt.Sprintf("sha256 = %q\n", strings.Repeat("0", 64))
	pinned := prepareNode(t, fmt.Sprintf(file, module, digest))
	p := launch(t, "serve", "-c", pinned.file)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("it runs with a module that is not the pinned one")
	}
	code := p.cmd.ProcessState.ExitCode()
	if code == 0 || !strings.Contains(p.err.String(), "pinned") {
		t.Errorf("exit %d: %s", code, p.err)
	}
}
