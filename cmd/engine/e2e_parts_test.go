package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// TestSavedFault: a policy that fails in service leaves a file, the log says where it failed and
// how to see it again, and that command sees the same.
func TestSavedFault(t *testing.T) {
	n := serveNode(t, "[scheduler]\ntoken_budget = 700\n")
	golden := embeddedGolden().cases(t)[0]
	file := moduleFile(t, "lines/lines")
	if r := n.load(t, file); r.code != 0 {
		t.Fatal(r)
	}
	n.serves(t, golden)
	saved := regexp.MustCompile(`"at":"(lines\.c:[0-9]+ \(divide\))","file":"([^"]+)"`)
	var found []string
	eventually(t, patience, func() error {
		if found = saved.FindStringSubmatch(n.err.String()); found == nil {
			return errors.New("the log names no file")
		}
		return nil
	})
	r := invoke(t, "", "policy", "replay", file, "--input", found[2])
	for _, want := range []string{"trap in pol_decide", "at " + found[1], "integer divide by zero",
		"✓ same    fault, fuel and step"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%q is missing: %v", want, r)
		}
	}
	r = invoke(t, "", "policy", "replay", "builtin:fcfs", "--input", found[2])
	if r.code != 0 || !strings.Contains(r.out, "✓ sound") {
		t.Error(r)
	}
	r = invoke(t, "", "policy", "replay", "builtin:fcfs", "--input", file)
	if r.code != 1 || !strings.Contains(r.err, "this is not a saved fault") {
		t.Error(r)
	}
}

// TestTwoPolicies: one module selects and another sets the chunk lengths, from the file and by
// command; each shows in the series, and going back goes back to both.
func TestTwoPolicies(t *testing.T) {
	n := serveNode(t, `
[policy]
select = "builtin:sjf-aging"
chunk  = "ones"
[policies.ones]
path = "`+moduleFile(t, "ones")+`"
`)
	golden := embeddedGolden().cases(t)[0]
	n.serves(t, golden)
	for state, policy := range map[string]string{"select": "builtin:sjf-aging", "chunk": "ones"} {
		if n.metric("engine_policy_info", `policy="`+policy+`"`, `state="`+state+`"`) != 1 {
			t.Errorf("%s is not %s", policy, state)
		}
	}
	// The prompt was computed one token a step: as many steps as it has tokens, at least.
	if steps := n.metric("engine_policy_decide_seconds_count", `policy="ones"`); steps <
		float64(len(golden.PromptIDs)) {
		t.Errorf("%v steps for a prompt of %d tokens", steps, len(golden.PromptIDs))
	}
	list := invoke(t, "", "policy", "list", "--admin", n.admin)
	if !strings.Contains(list.out, "select") || !strings.Contains(list.out, "chunk") {
		t.Error(list)
	}
	for _, step := range []struct{ args, says string }{
		{"load builtin:fcfs --activate --as select", "builtin:fcfs+ones@1.0.0 active"},
		{"load builtin:fcfs --activate", "builtin:fcfs active"},
		{"rollback", "builtin:fcfs+ones@1.0.0 active"},
		{"rollback --to 1", "builtin:sjf-aging+ones@1.0.0 active"},
		{"list", "go back: engine policy rollback --to SWAP"},
		{"load builtin:sjf-aging", "loaded, checked and tried"},
		{"rollback builtin:fcfs", "builtin:fcfs active"},
		{"unload ones", "ones unloaded"},
	} {
		args := append([]string{"policy"}, strings.Fields(step.args)...)
		r := invoke(t, "", append(args, "--admin", n.admin)...)
		if r.code != 0 || !strings.Contains(r.out, step.says) {
			t.Fatalf("%s: %v, want %q", step.args, r, step.says)
		}
		n.serves(t, golden)
	}
	r := invoke(t, "", "policy", "load", moduleFile(t, "ones"), "--activate", "--admin", n.admin)
	if r.code != 1 || !strings.Contains(r.err, "use it as chunk") {
		t.Error(r)
	}
	list = invoke(t, "", "policy", "list", "--json", "--admin", n.admin)
	if strings.Contains(list.out, `"name":"ones"`) || strings.Contains(list.out, `"name": "ones"`) {
		t.Errorf("a module that was refused is listed: %v", list)
	}
}

// TestRollbackByName: a name finds the latest of it in the history, also when it is not loaded any
// more.
func TestRollbackByName(t *testing.T) {
	n := serveNode(t, "")
	for _, step := range []struct{ args, says string }{
		{"load " + moduleFile(t, "waiting_only") + " --activate", "waiting_only@1.0.0 active"},
		{"load builtin:sjf-aging --activate", "builtin:sjf-aging active"},
		{"load builtin:vtc --activate", "builtin:vtc active"},
		{"unload waiting_only", "waiting_only unloaded"},
		{"rollback waiting_only", "waiting_only@1.0.0 active"},
	} {
		args := append([]string{"policy"}, strings.Fields(step.args)...)
		r := invoke(t, "", append(args, "--admin", n.admin)...)
		if r.code != 0 || !strings.Contains(r.out, step.says) {
			t.Fatalf("%s: %v, want %q", step.args, r, step.says)
		}
	}
	if r := invoke(t, "", "policy", "rollback", "nosuch", "--admin", n.admin); r.code != 1 {
		t.Error(r)
	}
}

// TestStopAdmitting: while the policy is set aside nothing new is taken, if the operator says so.
func TestStopAdmitting(t *testing.T) {
	n := serveNode(t, `
[policy]
on_fault = "stop_admitting"
[policy.breaker]
faults  = 1
backoff = "1h"
backoff_max = "1h"
`)
	golden := embeddedGolden().cases(t)[0]
	if r := n.load(t, moduleFile(t, "trap")); r.code != 0 {
		t.Fatal(r)
	}
	eventually(t, patience, func() error { // It is quiet in the instance's first second.
		a := post(t, n.api+"/v1/completions", greedy.with(fields{"prompt": golden.PromptIDs}))
		if a.status != 503 {
			return errors.New("it is served")
		}
		if !strings.Contains(a.body, "policy_set_aside") {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return nil
	})
	if v := n.metric("engine_policy_breaker", `policy="`+guest+`"`); v != 2 {
		t.Errorf("engine_policy_breaker is %v", v)
	}
	how := []string{`policy="` + guest + `"`, `how="bypassed"`}
	if v := n.metric("engine_policy_recoveries_total", how...); v != 1 {
		t.Errorf("engine_policy_recoveries_total is %v", v)
	}
	if r := n.activate(t, "builtin:fcfs"); r.code != 0 {
		t.Fatal(r)
	}
	n.serves(t, golden)
}
