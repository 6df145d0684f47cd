package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestInstancesJoinAndLeaveByCommand: the operator's commands change the fleet of a router under
// load, and no request notices.
func TestInstancesJoinAndLeaveByCommand(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	second := serveNode(t, "[node]\nrole = \"decode\"\nname = \"d1\"\n")
	answers := background(t.Context(), t, c.router.api+"/v1/completions", fields{
		"prompt": "And", "max_tokens": 480, "ignore_eos": true})
	eventually(t, patience, func() error {
		if n := c.decode.metric("engine_requests", `state="decoding"`); n != 1 {
			return fmt.Errorf("%v decode", n)
		}
		return nil
	})
	out := cliOf(t, c.router, 0, "instances", "join", "decode", "d1", second.internal)
	if !strings.Contains(out, "d1") || !strings.Contains(out, second.internal) {
		t.Errorf("%s", out)
	}
	out = cliOf(t, c.router, 0, "instances", "drain", "decode0")
	for line := range strings.Lines(out) {
		if name := strings.Fields(line); name[0] == "decode0" &&
			(name[2] != "draining" || name[3] != "0") {
			t.Errorf("after the drain: %s", line)
		}
	}
	if r := <-answers; r.status != 200 || !strings.Contains(r.body, `"length"`) {
		t.Errorf("the request that was under way: %d %.300s", r.status, r.body)
	}
	cliOf(t, c.router, 0, "instances", "leave", "decode0", "--role", "decode")
	r := post(t, c.router.api+"/v1/completions", fields{"prompt": "And", "max_tokens": 2})
	if r.status != 200 || second.metric("engine_requests_finished_total") == 0 {
		t.Errorf("the next request: %d %s", r.status, r.body)
	}
	out = cliOf(t, c.router, 0, "instances", "list", "--json")
	if strings.Contains(out, "decode0") || !strings.Contains(out, `"name":"d1"`) {
		t.Errorf("%s", out)
	}
	series, err := scrape(c.router.api)
	if err != nil {
		t.Fatal(err)
	}
	for key := range series {
		if strings.Contains(key, `instance="decode0"`) {
			t.Errorf("the metrics still name it: %s", key)
		}
	}
	for _, wrong := range [][]string{
		{"join", "decode", "d1", second.internal}, {"join", "both", "d2", second.internal},
		{"join", "decode", "px", c.prefill.internal}, {"join", "prefill", "dx", second.internal},
		{"join", "decode", "r", c.router.api},
		{"join", "decode", "d 2", second.internal}, {"join", "decode", "d2", "https://x"},
		{"leave", "nobody"}, {"drain", "d1", "--role", "prefill"},
	} {
		cliOf(t, c.router, 1, append([]string{"instances"}, wrong...)...)
	}
	cliOf(t, c.decode, 1, "instances", "list")
	reloadSays(t, c.router, "joined again", "applied 1 of 1")
	if out = cliOf(t, c.router, 0, "instances", "list"); !strings.Contains(out, "decode0") {
		t.Errorf("after a reload: %s", out)
	}
	rest(t, c.prefill, second)
}

// TestInstancesTellsSilence: one that takes connections and answers nothing is listed as such, with
// how long it was given, and nobody who lists waits for it.
func TestInstancesTellsSilence(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	quiet, err := net.Listen("tcp", "127.0.0.1:0") // Connections wait there and nobody answers.
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	cliOf(t, c.router, 0, "instances", "join", "prefill", "quiet", "http://"+quiet.Addr().String())
	eventually(t, patience, func() error {
		out := cliOf(t, c.router, 0, "instances", "list")
		_, line, _ := strings.Cut(out, "quiet ")
		if !strings.Contains(line, "silent") || !strings.Contains(line, " no answer in 2s\n") {
			return errors.New(out)
		}
		return nil
	})
	cliOf(t, c.router, 0, "instances", "leave", "quiet")
}

// cliOf runs a command against an instance; it must end with that code.
func cliOf(t *testing.T, n *node, code int, args ...string) string {
	t.Helper()
	p := launch(t, append(args, "--admin", n.admin)...)
	p.wait(code)
	return p.out.String()
}

// cli runs a command to its end and returns what it says; it must succeed.
func cli(t *testing.T, args ...string) string {
	t.Helper()
	p := launch(t, args...)
	p.wait(0)
	return p.out.String()
}
