//go:build cuda

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCUDAChoices: tokens that are chosen from the best logits, which the GPU finds, are those that
// the host chooses from all of them. An instance that writes debug lines has all rows come.
func TestCUDAChoices(t *testing.T) {
	driver, dir := emulatedDriver(t), shortDir(t)
	const cuda = "[backend]\nkind = \"cuda\"\n[node]\nrole = \"all\"\n"
	near := serveCUDA(t, driver, dir, cuda)
	far := serveCUDA(t, driver, dir, "[telemetry]\nlog_level = \"debug\"\n"+cuda)
	for i, settings := range []fields{
		{"temperature": 0}, {"temperature": 0.8, "top_k": 40}, {"temperature": 0.7, "top_p": 0.9},
		{"temperature": 1, "min_p": 0.1}, {"temperature": 0.9, "top_p": 0.8, "top_k": 100},
		{"temperature": 1}, {"temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.5},
		{"temperature": 0.7, "top_p": 0.9, "logprobs": 2},
	} {
		body := settings.with(fields{"prompt": "Once upon a time", "max_tokens": 24, "seed": i,
			"return_token_ids": true})
		var got [2][]int32
		for i, n := range []*node{near, far} {
			got[i] = post(t, n.api+"/v1/completions", body).completion(t).Choices[0].TokenIDs
		}
		if !slices.Equal(got[0], got[1]) || len(got[0]) == 0 {
			t.Errorf("%v: %v, from all logits %v", settings, got[0], got[1])
		}
	}
	for n, noted := range map[*node]bool{near: false, far: true} {
		n.stop()
		if strings.Contains(n.err.String(), "token sampled") != noted {
			t.Errorf("the log of an instance has lines of logits: %v", !noted)
		}
	}
}

// TestCUDADrafts: a main model and two drafts on GPUs, one of these with a window: the tokens are
// the golden ones, by one instance and over a hand-off of the keys and values of all three.
func TestCUDADrafts(t *testing.T) {
	driver, dir := emulatedDriver(t), shortDir(t)
	data := filepath.Join(sharedDir(t), "data")
	folder := func(name string) string { return filepath.Join(data, "models", name) }
	g := goldenModel{folder: folder("w256-bf16"),
		file: filepath.Join(data, "golden", "inflated_w256-bf16.json")}
	text := fmt.Sprintf("[backend]\nkind = \"cuda\"\n[model]\npath = %q\nadditional = [%q, %q]\n"+
		"[kv_cache]\nprefix_cache = false\n[scheduler]\ntoken_budget = 16\n[node]\n", g.folder,
		folder("mistral-swa32"), folder("stories-qwen3"))
	c := &cluster{t: t,
		prefill: serveCUDA(t, driver, dir, text+"role = \"prefill\"\nname = \"p0\"\n"),
		decode:  serveCUDA(t, driver, dir, text+"role = \"decode\"\nname = \"d0\"\n")}
	c.router = serveRouter(t, "", []*node{c.prefill}, []*node{c.decode})
	cases := g.cases(t)
	want := cases[len(cases)-1]
	for _, c := range cases {
		if len(c.PromptIDs) > len(want.PromptIDs) {
			want = c
		}
	}
	body := greedy.with(fields{"prompt": want.PromptIDs, "return_token_ids": true})
	delete(body, "model")
	for _, url := range []string{c.router.api, c.decode.api} {
		got := post(t, url+"/v1/completions", body).completion(t).Choices[0].TokenIDs
		if !slices.Equal(got, want.GreedyIDs) {
			t.Errorf("%q: tokens %v, want %v", want.Prompt, got, want.GreedyIDs)
		}
	}
	main := int64(len(want.PromptIDs)-1) * g.positionBytes(t)
	if sent := int64(c.prefill.metric("engine_transfer_bytes_total",
		`direction="send"`)); sent <= main {
		t.Errorf("%d bytes were sent; the main model alone has %d", sent, main)
	}
	c.rest(t)
	c.stop()
}

// TestCUDALostBehindARouter: when the GPU of one of two decode instances is lost, the instance says
// so and lives, the router takes it for down, and what is asked from then on is answered by the
// other one with the same tokens.
func TestCUDALostBehindARouter(t *testing.T) {
	driver, dir := emulatedDriver(t), shortDir(t)
	c := embeddedGolden().cases(t)[0]
	text := func(role, name string) string {
		return fmt.Sprintf("[backend]\nkind = \"cuda\"\n[node]\nrole = %q\nname = %q\n", role, name)
	}
	prefill := serveCUDA(t, driver, dir, text("prefill", "p0"))
	sound := serveCUDA(t, driver, dir, text("decode", "sound"))
	lost := prepareNode(t, text("decode", "lost"))
	lost.process = launchCUDA(t, driver, []string{"XDG_RUNTIME_DIR=" + dir,
		"ENGINE_EMULATOR_FAULTS=lost=3000"}, "serve", "-c", lost.file, "--until-eof")
	lost.awaitReady()
	r := serveRouter(t, "", []*node{prefill}, []*node{lost, sound})
	body := greedy.with(fields{"prompt": c.PromptIDs, "return_token_ids": true})
	ask := func() reply {
		a := post(t, r.api+"/v1/completions", body)
		if a.status == http.StatusOK {
			if got := a.completion(t).Choices[0].TokenIDs; !slices.Equal(got, c.GreedyIDs) {
				t.Fatalf("tokens %v, want %v", got, c.GreedyIDs)
			}
		}
		return a
	}
	gone := func() bool { return get(t, lost.api+"/ready").status == http.StatusServiceUnavailable }
	const most = 200
	asked := 0
	for ; asked < most && !gone(); asked++ {
		if a := ask(); a.status != http.StatusOK {
			code, message := a.failure(t)
			t.Logf("a request that met the loss: %d %s: %s", a.status, code, message)
		}
	}
	if asked == most {
		t.Fatalf("the device outlived %d requests", asked)
	}
	eventually(t, patience, func() error {
		if lost.metric("engine_ready") != 0 {
			return fmt.Errorf("the gauge says that requests are taken")
		}
		if state := r.state(t, "decode0"); state != "down" {
			return fmt.Errorf("the router takes the instance for %s", state)
		}
		return nil
	})
	for range 4 {
		if a := ask(); a.status != http.StatusOK {
			t.Errorf("after the loss: %d %s", a.status, a.body)
		}
	}
	if code, _ := get(t, lost.api+"/ready").failure(t); code != "device_lost" {
		t.Errorf("ready says %s", code)
	}
	if live := get(t, lost.api+"/live").status; live != http.StatusOK {
		t.Errorf("live answers %d", live)
	}
	if ready := get(t, r.api+"/ready").status; ready != http.StatusOK {
		t.Errorf("the router's ready answers %d", ready)
	}
	for _, n := range []*node{r, prefill, sound, lost} {
		n.stop()
	}
}

// state is what a router says of an instance.
func (n *node) state(t *testing.T, name string) string {
	t.Helper()
	var list struct {
		Instances []struct{ Name, State string }
	}
	text := invoke(t, "", "instances", "list", "--admin", n.admin, "--json").out
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, i := range list.Instances {
		if i.Name == name {
			return i.State
		}
	}
	return "nobody"
}
