package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// reloadFile is a configuration with the values that the tests change.
func reloadFile(n *node, policy string, queue, pageSize int) string {
	return fmt.Sprintf("[listen]\nadmin = %q\napi = \"127.0.0.1:0\"\ninternal = \"127.0.0.1:0\"\n"+
		"[policy]\nactive = %q\n[scheduler]\nmax_num_seqs = 1\nmax_queue = %d\n"+
		"[kv_cache]\npage_size = %d\n", n.admin, policy, queue, pageSize)
}

// serveReloadable starts an instance whose file can be rewritten.
func serveReloadable(t *testing.T, policy string, queue, pageSize int) *node {
	t.Helper()
	n := prepareNode(t, "")
	n.rewrite(t, reloadFile(n, policy, queue, pageSize))
	n.process = launch(t, "serve", "-c", n.file, "--until-eof")
	n.awaitReady()
	return n
}

// policy is the one that answers name.
func (n *node) policy(t *testing.T) string {
	t.Helper()
	r := post(t, n.api+"/v1/completions", fields{"prompt": []int32{5, 6, 7}, "max_tokens": 1})
	if r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	return r.header.Get("X-Engine-Policy")
}

// queues sends so many requests at once to an instance with one seat, and returns how many were
// refused because the queue was full.
func (n *node) queues(t *testing.T, requests int) (refused int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	blocker := open(t, n.api+"/v1/completions", song(1))
	defer blocker.leave()
	var waiting sync.WaitGroup
	answers := make(chan reply, requests)
	for range requests {
		body := fields{"prompt": []int32{5, 6, 7}, "max_tokens": 1}.reader(t)
		waiting.Go(func() {
			r, err := send(ctx, http.MethodPost, n.api+"/v1/completions", body)
			if err != nil {
				r.status = 0
			}
			answers <- r
		})
	}
	waiting.Wait()
	close(answers)
	for r := range answers {
		switch r.status {
		case http.StatusTooManyRequests:
			if code, _ := r.failure(t); code != "queue_full" || r.header.Get("Retry-After") == "" {
				t.Errorf("%s %v", r.body, r.header)
			}
			refused++
		case http.StatusOK:
		default:
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	return refused
}

// fills sends more requests than the queue holds until one is refused: what blocks the seat may be
// over before the requests are there.
func (n *node) fills(t *testing.T, requests int) {
	t.Helper()
	for range 20 {
		if n.queues(t, requests) > 0 {
			return
		}
	}
	t.Errorf("the queue took %d requests, each time", requests)
}

// TestReload changes a running instance by its file: what can change does, what needs a restart is
// said, and said again the next time.
func TestReload(t *testing.T) {
	n := serveReloadable(t, "builtin:fcfs", 4, 16)
	if got := n.policy(t); got != "builtin:fcfs" {
		t.Errorf("policy %q", got)
	}
	n.fills(t, 30)
	n.rewrite(t, reloadFile(n, "builtin:sjf-aging", 200, 32))
	r := invoke(t, "", "reload", "--admin", n.admin)
	for _, want := range []string{
		`~ policy.active`, `builtin:fcfs → builtin:sjf-aging`, `~ scheduler.max_queue`, `4 → 200`,
		`! kv_cache.page_size`, `16 → 32   needs a restart`, `applied 2 of 3 · generation 1`,
	} {
		if r.code != 0 || !strings.Contains(strings.ReplaceAll(r.out, `"`, ""), want) {
			t.Errorf("exit %d, want %q in\n%s%s", r.code, want, r.out, r.err)
		}
	}
	if got := n.policy(t); got != "builtin:sjf-aging" {
		t.Errorf("policy %q after the reload", got)
	}
	if refused := n.queues(t, 100); refused != 0 {
		t.Errorf("%d requests were refused by a queue of 200", refused)
	}
	if steps := n.metric("engine_policy_fallback_steps_total"); steps != 0 {
		t.Errorf("the larger queue made the fallback decide %v steps", steps)
	}
	if size := n.metric("engine_kv_page_capacity", `page_size="16"`); size == 0 {
		t.Error("the page size has changed")
	}
	r = invoke(t, "", "reload", "--admin", n.admin)
	if r.code != 0 || !strings.Contains(r.out, "kv_cache.page_size") ||
		!strings.Contains(r.out, "applied 0 of 1 · generation 2") {
		t.Errorf("the second time: %v", r)
	}
	rest(t, n)
	n.stop()
}

// TestReloadKeepsWhatItHasNoRoomFor raises the token budget above the rows that the model was
// loaded with: that needs a restart, is said each time, and requests go on. Less can be had at
// once, and as much as at the start again.
func TestReloadKeepsWhatItHasNoRoomFor(t *testing.T) {
	n := prepareNode(t, "")
	write := func(budget, lines int) {
		text := reloadFile(n, "builtin:fcfs", 4, 16) + fmt.Sprintf("[policy.limits]\n"+
			"log_lines = %d\n", lines)
		limits := fmt.Sprintf("[scheduler]\ntoken_budget = %d\n", budget)
		n.rewrite(t, strings.Replace(text, "[scheduler]\n", limits, 1))
	}
	write(64, 100)
	n.process = launch(t, "serve", "-c", n.file, "--until-eof")
	n.awaitReady()
	long := make([]int32, 300)
	for i := range long {
		long[i] = int32(5 + i%50)
	}
	for _, c := range []struct {
		budget, lines int
		line, total   string
	}{
		{4096, 100, "! scheduler.token_budget|64 → 4096   needs a restart", "applied 0 of 1"},
		{4096, 200, "! scheduler.token_budget|64 → 4096   needs a restart", "applied 1 of 2"},
		{32, 200, "~ scheduler.token_budget|64 → 32   applied", "applied 1 of 1"},
		{65, 200, "! scheduler.token_budget|32 → 65   needs a restart", "applied 0 of 1"},
		{64, 200, "~ scheduler.token_budget|32 → 64   applied", "applied 1 of 1"},
	} {
		write(c.budget, c.lines)
		r := invoke(t, "", "reload", "--admin", n.admin)
		for _, want := range append(strings.Split(c.line, "|"), c.total) {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("budget %d: exit %d, want %q in\n%s%s", c.budget, r.code, want, r.out,
					r.err)
			}
		}
		a := post(t, n.api+"/v1/completions", fields{"prompt": long, "max_tokens": 1})
		if a.status != http.StatusOK {
			t.Errorf("budget %d: %d %s", c.budget, a.status, a.body)
		}
		long[0]++ // What the prefix cache has is not computed.
	}
	rest(t, n)
	n.stop()
}

// TestReloadTellsAgain: what needs a restart is told at each reload, though its table was applied.
func TestReloadTellsAgain(t *testing.T) {
	n := serveReloadable(t, "builtin:fcfs", 4, 16)
	text := reloadFile(n, "builtin:fcfs", 8, 16)
	text = strings.Replace(text, "[scheduler]\n", "seed = 7\n[scheduler]\n"+
		"queue_timeout = \"20s\"\nstall = \"9s\"\n", 1)
	n.rewrite(t, text)
	for _, total := range []string{"applied 1 of 4", "applied 0 of 3"} {
		r := invoke(t, "", "reload", "--admin", n.admin)
		for _, want := range []string{"! policy.seed", "! scheduler.queue_timeout",
			"! scheduler.stall", total} {
			if r.code != 0 || !strings.Contains(r.out, want) {
				t.Errorf("exit %d, want %q in\n%s%s", r.code, want, r.out, r.err)
			}
		}
	}
	n.stop()
}

// TestBrokenReloadChangesNothing gives an instance files that it cannot take.
func TestBrokenReloadChangesNothing(t *testing.T) {
	n := serveReloadable(t, "builtin:fcfs", 4, 16)
	good := reloadFile(n, "builtin:sjf-aging", 200, 16)
	instead := func(was, is string) string { return strings.Replace(good, was, is, 1) }
	for name, broken := range map[string]struct {
		text, says string
		code       int
	}{
		"syntax":        {good + "[policy\n", "engine.toml:", exitConfig},
		"unknown key":   {good + "[api]\nmax_bdy = \"1MiB\"\n", "max_bdy", exitConfig},
		"no such value": {instead("max_queue = 200", "max_queue = -1"), "max_queue", exitConfig},
		"no policy":     {instead("builtin:sjf-aging", "nosuch"), "nosuch", exitConfig},
		"no module": {instead("builtin:sjf-aging", "mine") +
			"[policies.mine]\npath = \"none.wasm\"\n", "E401", exitConfig},
		"a score nobody runs": {good + "[policies.m]\nscore = \"remaining_prefil\"\n",
			"engine.toml:13:10", exitConfig},
		"refused module": {instead("builtin:sjf-aging", "mine") +
			fmt.Sprintf("[policies.mine]\npath = %q\n", moduleFile(t, "trap_at_once")),
			"E403", exitConfig},
	} {
		t.Run(name, func(t *testing.T) {
			n.rewrite(t, broken.text)
			r := invoke(t, "", "reload", "--admin", n.admin)
			if r.code == 0 || broken.code != 0 && r.code != broken.code ||
				!strings.Contains(r.err, broken.says) || r.out != "" {
				t.Errorf("exit %d, %s%s, want exit %d and %q", r.code, r.out, r.err, broken.code,
					broken.says)
			}
			if got := n.policy(t); got != "builtin:fcfs" {
				t.Errorf("policy %q", got)
			}
		})
	}
	n.fills(t, 30)
	n.rewrite(t, good)
	if r := invoke(t, "", "reload", "--admin", n.admin); r.code != 0 ||
		!strings.Contains(r.out, "applied 2 of 2 · generation 1") {
		t.Errorf("a good file after the broken ones: %v", r)
	}
	rest(t, n)
	n.stop()
}

// TestHangup reloads by SIGHUP, as init systems do, with a good file and with a broken one.
func TestHangup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGHUP here")
	}
	n := serveReloadable(t, "builtin:fcfs", 4, 16)
	hangup := func(text, says string) {
		t.Helper()
		n.rewrite(t, text)
		seen := strings.Count(n.err.String(), says)
		if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, func() error {
			if strings.Count(n.err.String(), says) == seen {
				return errors.New("the log does not say " + says)
			}
			return nil
		})
	}
	hangup(reloadFile(n, "builtin:sjf-aging", 200, 32), `"msg":"reloaded"`)
	if got := n.policy(t); got != "builtin:sjf-aging" {
		t.Errorf("policy %q", got)
	}
	hangup("[nonsense", `reload refused; the running configuration stays`)
	if got := n.policy(t); got != "builtin:sjf-aging" {
		t.Errorf("policy %q after a broken file", got)
	}
	for _, want := range []string{`"key":"kv_cache.page_size"`, `"result":"needs a restart"`} {
		if !strings.Contains(n.err.String(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	n.stop()
}
