package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins"
)

// TestExplain lets one request wait for another's place and asks why, while it waits and after it
// has ended; what the lines say adds up to what the answer was told.
func TestExplain(t *testing.T) {
	n := serveNode(t, "[scheduler]\nmax_num_seqs = 1\n")
	url := n.api + "/v1/completions"
	explained := func(id string) admin.Explanation {
		var x admin.Explained
		eventually(t, patience, func() error {
			r := invoke(t, "", "explain", id, "--json", "--admin", n.admin)
			if r.code != 0 {
				return errors.New(r.err)
			}
			return json.Unmarshal([]byte(r.out), &x)
		})
		return x.Requests[0]
	}
	line := func(x admin.Explanation, what string) *admin.Line {
		for i := range x.Lines {
			if x.Lines[i].What == what {
				return &x.Lines[i]
			}
		}
		return nil
	}
	attempt, second := 0, ""
	var waits, ended admin.Explanation
	eventually(t, patience, func() error {
		attempt++
		id := fmt.Sprint("first-", attempt)
		first := complete(t, url, song(1), "X-Request-Id: "+id)
		for sings := explained(id); sings.State != "" && line(sings, "first token") == nil; {
			sings = explained(id)
		}
		second = fmt.Sprint("second-", attempt)
		answer := complete(t, url, greedy.with(fields{"prompt": []int{900, 901, 902},
			"max_tokens": 4}), "X-Request-Id: "+second, "X-Tenant: acme", "X-Deadline-Ms: 60000")
		for waits = explained(second); waits.State == "waiting"; waits = explained(second) {
			if refused := line(waits, "refused"); refused != nil && refused.Steps > 1 {
				break
			}
		}
		if err := errors.Join(<-first, <-answer); err != nil {
			t.Fatal(err)
		}
		if ended = explained(second); waits.State != "waiting" {
			return errors.New("the first request ended before the second was seen to wait")
		}
		return nil
	})
	refused := line(ended, "refused")
	if ended.State != "" || ended.Reason != "length" || ended.Tenant != "acme" ||
		ended.Prompt != 3 || ended.Output != 4 || refused == nil || refused.Why != "max_seqs" ||
		refused.Steps < 2 || refused.Policy == "" || line(ended, "computed").Tokens != 3 {
		t.Errorf("while it waited %+v\nin the end %+v", waits, ended)
	}
	if queue := line(ended, "admitted").From; queue < 0.9*ended.Queue || queue > ended.FirstToken {
		t.Errorf("admitted after %v, it says it queued for %v", queue, ended.Queue)
	}
	explainedInWords(t, n, second)
	r := invoke(t, "", "explain", "nobody", "--admin", n.admin)
	if r.code != exitFailed || !strings.Contains(r.err, `no request "nobody"`) {
		t.Errorf("%+v", r)
	}
	if x := explained(fmt.Sprint(ended.Number)); x.ID != second {
		t.Errorf("by its number: %+v", x)
	}
	n.stop()
}

// explainedInWords checks what the command prints of the second request.
func explainedInWords(t *testing.T, n *node, id string) {
	t.Helper()
	text := invoke(t, "", "explain", id, "--admin", n.admin).out
	want := regexp.MustCompile(`(?s)^` + id + `  on \S+  local  in 3 \(cached 0\)  out 4  total ` +
		`\S+ s  tenant acme  policy builtin:fcfs\n` +
		`   0\.000  queued        1 waiting, it included\n.*` +
		`refused       \d+ steps: as many requests held pages as may .*builtin:fcfs\n.*` +
		`admitted      0 tokens in the prefix cache\n.*` +
		`computed      3 tokens in 1 step, 3 in the last\n.*` +
		`first token\n.*ended         length\n.*` +
		`  TTFT \S+ s = queue \S+ \+ prefill \S+.*  ended \(length\)\n$`)
	if !want.MatchString(text) {
		t.Errorf("explain says\n%s", text)
	}
}

// complete asks for a completion, whose end the channel tells.
func complete(t *testing.T, url string, body fields, headers ...string) chan error {
	t.Helper()
	done := make(chan error, 1)
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		r := visit(t, http.DefaultClient, knock{"POST", url, string(text)}, headers...)
		if r.status != http.StatusOK {
			done <- fmt.Errorf("%d %s", r.status, r.body)
		}
		close(done)
	}()
	return done
}

// TestWhoDecided: an answer and its explanation name the module while it decides, and the built-in
// policy from the moment that it decides in the module's place.
func TestWhoDecided(t *testing.T) {
	n := serveNode(t, "")
	if r := n.load(t, moduleFile(t, "trap")); r.code != 0 {
		t.Fatal(r)
	}
	asked := 0
	ask := func() (header, explained string) {
		asked++
		id := fmt.Sprint("ask-", asked)
		body := `{"prompt":[5,6,7],"max_tokens":1}`
		r := visit(t, http.DefaultClient, knock{"POST", n.api + "/v1/completions", body},
			"X-Request-Id: "+id)
		if r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
		var x admin.Explained
		said := invoke(t, "", "explain", id, "--json", "--admin", n.admin)
		if err := json.Unmarshal([]byte(said.out), &x); err != nil {
			t.Fatalf("%v: %v", said, err)
		}
		return r.header.Get("X-Engine-Policy"), x.Requests[0].Policy
	}
	const builtin = "native:fcfs"
	eventually(t, patience, func() error { // It is sound in the instance's first second.
		before := n.metric("engine_policy_fallback_steps_total")
		header, explained := ask()
		stood := n.metric("engine_policy_fallback_steps_total") > before
		if header != explained || stood != (header == builtin) ||
			!stood && !strings.HasPrefix(header, guest) {
			t.Errorf("the built-in policy decided: %v; the answer names %q, the explanation %q",
				stood, header, explained)
		}
		if !stood {
			return errors.New("the module has not faulted")
		}
		return nil
	})
	n.stop()
}

// TestReasonsHaveWords: those of a shipped policy, and of a module beside its policy.toml; a host
// that was given them finds them by the name that decisions carry.
func TestReasonsHaveWords(t *testing.T) {
	const shipped = "builtin:edf-relegate"
	words := reasonsFor(shipped)
	if words[1] == "" || words[2] == "" {
		t.Errorf("%s: %v", shipped, words)
	}
	source := filepath.Join("..", "..", "examples", "plugins", "edf-relegate")
	if beside := reasonsFor(filepath.Join(source, "any.wasm")); !maps.Equal(beside, words) {
		t.Errorf("beside the module %v, in the binary %v", beside, words)
	}
	if none := reasonsFor(filepath.Join(t.TempDir(), "any.wasm")); none != nil {
		t.Errorf("without a policy.toml: %v", none)
	}
	h, err := plugins.New(plugins.Options{Slots: 8, Decisions: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	spec, err := namedPolicy(config.Default(), shipped)
	if err != nil {
		t.Fatal(err)
	}
	status, err := h.Load(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	name := status.Name + "@" + status.Version
	if got := h.ReasonWords(name, 2); got != words[2] {
		t.Errorf("reason 2 of %s: %q, want %q", name, got, words[2])
	}
	if got := h.ReasonWords(name, 60000) + h.ReasonWords("other", 2); got != "" {
		t.Errorf("of what nobody has said: %q", got)
	}
}
