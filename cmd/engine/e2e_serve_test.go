package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// TestThreeProcesses goes through what a client may do with prefill, decode and router. After each
// scenario every page is free or cached, on every instance.
func TestThreeProcesses(t *testing.T) {
	c := startCluster(t, clusterOptions{router: "[api]\nmax_body = \"64KiB\"\n"})
	for _, s := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"models", listsModels}, {"completions", completes}, {"chat", chats},
		{"streams", streamsTwo}, {"sampling", samplesBySeed}, {"errors", typesErrors},
		{"cancel a stream", cancelsStream}, {"cancel a request", cancelsRequest},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, c); c.rest(t) })
	}
	if got := c.router.metric("engine_router_decisions_total", `decision="remote"`); got < 8 {
		t.Errorf("%v requests were prefilled by the prefill instance", got)
	}
	c.stop()
}

func listsModels(t *testing.T, c *cluster) {
	var list openai.ModelList
	get(t, c.router.api+"/v1/models").decode(t, &list)
	if list.Object != "list" || len(list.Data) != 1 || list.Data[0].ID != "embedded" ||
		list.Data[0].Object != "model" || list.Data[0].MaxModelLen != 512 {
		t.Errorf("%+v", list)
	}
	for _, path := range []string{"/live", "/ready", "/health"} {
		for _, url := range []string{c.router.api, c.prefill.internal, c.decode.internal} {
			if r := get(t, url+path); r.status != http.StatusOK {
				t.Errorf("%s%s: %d %s", url, path, r.status, r.body)
			}
		}
	}
}

// greedy asks for the golden tokens.
var greedy = fields{"model": "embedded", "temperature": 0, "max_tokens": 40,
	"debug_config": fields{"ignore_eos": true}}

func completes(t *testing.T, c *cluster) {
	cases := embeddedGolden().cases(t)
	url := c.router.api + "/v1/completions"
	var prompts []any
	for _, g := range cases {
		prompts = append(prompts, g.Prompt)
		one := post(t, url, greedy.with(fields{"prompt": g.Prompt})).completion(t)
		ids := post(t, url, greedy.with(fields{"prompt": g.PromptIDs, "return_token_ids": true})).
			completion(t)
		if len(one.Choices) != 1 || one.Choices[0].Text != g.Text || *one.Choices[0].FinishReason !=
			"length" || one.Object != "text_completion" || !strings.HasPrefix(one.ID, "cmpl-") {
			t.Errorf("%q: %+v, want text %q", g.Prompt, one, g.Text)
		}
		if got := ids.Choices[0]; got.Text != g.Text || !slices.Equal(got.TokenIDs, g.GreedyIDs) {
			t.Errorf("%q: ids give %+v, want %v", g.Prompt, got, g.GreedyIDs)
		}
		if u := one.Usage.Usage; u == nil || u.PromptTokens != len(g.PromptIDs) ||
			u.CompletionTokens != 40 || u.TotalTokens != u.PromptTokens+40 {
			t.Errorf("%q: usage %+v", g.Prompt, u)
		}
	}
	all := post(t, url, greedy.with(fields{"prompt": prompts})).completion(t)
	for i, g := range cases {
		if all.Choices[i].Index != i || all.Choices[i].Text != g.Text {
			t.Errorf("choice %d: %+v, want %q", i, all.Choices[i], g.Text)
		}
	}
	lists := post(t, url, greedy.with(fields{"prompt": []any{cases[0].PromptIDs, []int32{5}}})).
		completion(t)
	if len(lists.Choices) != 2 || lists.Choices[0].Text != cases[0].Text {
		t.Errorf("lists of ids: %+v", lists)
	}
}

// chatCase is the golden case that a conversation renders to.
func chatCase(t *testing.T) (fields, goldenCase) {
	t.Helper()
	pattern := regexp.MustCompile(`^<\|user\|>(.*)</s><\|assistant\|>$`)
	for _, g := range embeddedGolden().cases(t) {
		if found := pattern.FindStringSubmatch(g.Prompt); found != nil {
			said := []fields{{"role": "user", "content": found[1]}}
			return greedy.with(fields{"messages": said}), g
		}
	}
	t.Fatal("no golden case is a conversation")
	return nil, goldenCase{}
}

func chats(t *testing.T, c *cluster) {
	ask, want := chatCase(t)
	var r openai.ChatResponse
	post(t, c.router.api+"/v1/chat/completions", ask).decode(t, &r)
	if len(r.Choices) != 1 || r.Choices[0].Message.Role != "assistant" ||
		strings.TrimSpace(r.Choices[0].Message.Content) != strings.TrimSpace(want.Text) ||
		*r.Choices[0].FinishReason != "length" || r.Object != "chat.completion" {
		t.Errorf("%+v, want %q", r, want.Text)
	}
	if u := r.Usage.Usage; u == nil || u.PromptTokens != len(want.PromptIDs) {
		t.Errorf("usage %+v, want %d prompt tokens", u, len(want.PromptIDs))
	}

	ask["stream_options"] = fields{"include_usage": true}
	l := open(t, c.router.api+"/v1/chat/completions", ask)
	var text, reason, role string
	var usage *openai.Usage
	var chunk openai.ChatChunk
	for l.next(&chunk) {
		if usage = chunk.Usage.Usage; len(chunk.Choices) == 0 {
			chunk = openai.ChatChunk{}
			continue
		}
		if usage != nil {
			t.Error("usage before the end")
		}
		d := chunk.Choices[0].Delta
		role += d.Role
		if d.Content != nil {
			text += *d.Content
		}
		if f := chunk.Choices[0].FinishReason; f != nil {
			reason += *f
		}
		chunk = openai.ChatChunk{}
	}
	if text != r.Choices[0].Message.Content || reason != "length" || role != "assistant" ||
		usage == nil || *usage != openai.NewUsage(len(want.PromptIDs), 40,
		usage.PromptTokensDetails.CachedTokens) {
		t.Errorf("streamed %q %q %q %+v", role, text, reason, usage)
	}
}

// streamsTwo reads two answers from one stream, and their usage at its end.
func streamsTwo(t *testing.T, c *cluster) {
	cases := embeddedGolden().cases(t)[:2]
	l := open(t, c.router.api+"/v1/completions", greedy.with(fields{
		"prompt":         []string{cases[0].Prompt, cases[1].Prompt},
		"stream_options": fields{"include_usage": true},
	}))
	texts, reasons := [2]string{}, [2]string{}
	var usage *openai.Usage
	for {
		var chunk openai.CompletionResponse
		if !l.next(&chunk) {
			break
		}
		if usage != nil || !chunk.Usage.Shown {
			t.Errorf("usage is not null but at the end: %+v", chunk)
		}
		usage = chunk.Usage.Usage
		for _, choice := range chunk.Choices {
			texts[choice.Index] += choice.Text
			if choice.FinishReason != nil {
				reasons[choice.Index] += *choice.FinishReason
			}
		}
	}
	if texts != [2]string{cases[0].Text, cases[1].Text} || reasons != [2]string{"length",
		"length"} {
		t.Errorf("%q %q", texts, reasons)
	}
	if n := len(cases[0].PromptIDs) + len(cases[1].PromptIDs); usage == nil ||
		usage.PromptTokens != n || usage.CompletionTokens != 80 {
		t.Errorf("usage %+v, want %d and 80", usage, n)
	}
}

func samplesBySeed(t *testing.T, c *cluster) {
	url := c.router.api + "/v1/completions"
	text := func(more fields) string {
		all := fields{"prompt": "In the beginning", "max_tokens": 30, "temperature": 1}.with(more)
		return post(t, url, all).completion(t).Choices[0].Text
	}
	one, again, other := text(fields{"seed": 1}), text(fields{"seed": 1}), text(fields{"seed": 2})
	if one != again || one == other {
		t.Errorf("seed 1 gives %q and %q, seed 2 %q", one, again, other)
	}
	golden := embeddedGolden().cases(t)[0]
	words := strings.Fields(golden.Text)
	stop := words[min(5, len(words)-1)]
	before, _, _ := strings.Cut(golden.Text, stop)
	got := text(fields{"temperature": 0, "max_tokens": 40, "stop": []string{stop, "zzz"}})
	if got != before {
		t.Errorf("stopped before %q with %q, want %q", stop, got, before)
	}
}

func typesErrors(t *testing.T, c *cluster) {
	completions, chat := c.router.api+"/v1/completions", c.router.api+"/v1/chat/completions"
	start := c.decode.internal + openai.PathStartGenerate
	prompt := `{"prompt": "hello", `
	for _, e := range []struct {
		method, url, body string
		status            int
		code, says        string
	}{
		{"POST", completions, prompt + `"model": "nosuch"}`, 404, "model_not_found", "nosuch"},
		{"POST", completions, `{"prompt": "hello"`, 400, "invalid_json", ""},
		{"POST", completions, `[1, 2]`, 400, "", "object"},
		{"POST", completions, `{}`, 400, "missing_field", "prompt"},
		{"POST", completions, prompt + `"temperature": 9}`, 400, "invalid_value", "temperature"},
		{"POST", completions, prompt + `"temperature": "x"}`, 400, "invalid_type", "temperature"},
		{"POST", completions, `{"prompt": [5000]}`, 400, "invalid_value", "5000"},
		{"POST", completions, `{"prompt": "` + strings.Repeat("word ", 600) + `"}`, 400,
			"context_length_exceeded", "maximum context length is 512 tokens"},
		{"POST", chat, `{"messages": [{"role": "user", "content": "` +
			strings.Repeat("word ", 600) + `"}]}`, 400, "context_length_exceeded",
			"maximum context length is 512 tokens"},
		{"POST", chat, `{"messages": []}`, 400, "", "messages"},
		{"POST", completions, strings.Repeat(" ", 70<<10) + `{}`, 413, "request_too_large",
			"max_body"},
		{"GET", c.router.api + "/v1/nosuch", "", 404, "unknown_url", "/v1/nosuch"},
		{"GET", completions, "", 405, "method_not_allowed", "POST"},
		{"DELETE", c.router.api + "/v1/models", "", 405, "method_not_allowed", "GET"},
		{"POST", c.router.api + openai.PathStartGenerate, "{}", 404, "unknown_url", ""},
		{"POST", start, `{"prompt": [5, 6, 7], "begin": 2, "user": "nobody"}`, 404,
			"reservation_not_found", "nobody"},
		{"POST", c.decode.internal + "/v1/completions", "{}", 404, "unknown_url", ""},
		{"GET", start, "", 405, "method_not_allowed", "POST"},
	} {
		r, err := send(t.Context(), e.method, e.url, strings.NewReader(e.body))
		if err != nil {
			t.Fatal(err)
		}
		code, message := r.failure(t)
		if r.status != e.status || e.code != "" && code != e.code || !strings.Contains(message,
			e.says) {
			t.Errorf("%s %s %.80s: %d %s %q, want %d %s %q", e.method, e.url, e.body, r.status,
				code,
				message, e.status, e.code, e.says)
		}
		if allow := r.header.Get("Allow"); (allow != "") != (e.status == 405) {
			t.Errorf("%s %s: Allow %q", e.method, e.url, allow)
		}
		if r.header.Get("X-Request-Id") == "" ||
			r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: headers %v", e.method, e.url, r.header)
		}
	}
}

// many asks for so much that nothing ends while a test looks.
func many() fields {
	prompts := make([][]int32, 60)
	for i := range prompts {
		prompts[i] = []int32{5, int32(6 + i), 7}
	}
	return greedy.with(fields{"prompt": prompts, "max_tokens": 500})
}

// cancelsStream leaves a stream whose first tokens have come.
func cancelsStream(t *testing.T, c *cluster) {
	before := c.decode.metric("engine_requests_finished_total", `reason="cancelled"`)
	l := open(t, c.router.api+"/v1/completions", many())
	for range 3 {
		if !l.next(&openai.CompletionResponse{}) {
			t.Fatal("the stream has ended")
		}
	}
	l.leave()
	c.rest(t)
	if got := c.decode.metric("engine_requests_finished_total",
		`reason="cancelled"`); got == before {
		t.Error("no request counts as cancelled on the decode instance")
	}
}

// cancelsRequest leaves a request that does not stream, once the decode instance works on it.
func cancelsRequest(t *testing.T, c *cluster) {
	before := c.decode.metric("engine_requests_finished_total", `reason="cancelled"`)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	body := many().reader(t)
	go func() {
		_, err := send(ctx, http.MethodPost, c.router.api+"/v1/completions", body)
		gone <- err
	}()
	eventually(t, patience, func() error {
		if c.decode.metric("engine_requests", `state="decoding"`) == 0 {
			return fmt.Errorf("nothing is decoding")
		}
		return nil
	})
	cancel()
	if err := <-gone; err == nil {
		t.Error("the request was answered before it could be left")
	}
	c.rest(t)
	if got := c.decode.metric("engine_requests_finished_total",
		`reason="cancelled"`); got == before {
		t.Error("no request counts as cancelled on the decode instance")
	}
}

// TestDemo starts the three processes as a newcomer does, and finds the API at the first URL.
func TestDemo(t *testing.T) {
	dir := shortDir(t)
	p := launch(t, "serve", "--demo-pd", "--out", dir)
	if p.out.await(readyLine) == nil {
		t.Fatalf("not ready:\n%s%s", p.out, lastLines(p.err.String()))
	}
	said := p.out.String()
	url := regexp.MustCompile(`https?://\S+`).FindString(said)
	var list openai.ModelList
	get(t, url+"/models").decode(t, &list)
	golden := embeddedGolden().cases(t)[0]
	got := post(t, url+"/completions", greedy.with(fields{"prompt": golden.Prompt})).completion(t)
	if got.Choices[0].Text != golden.Text {
		t.Errorf("%+v, want %q", got, golden.Text)
	}
	var nodes []*node
	for _, found := range regexp.MustCompile(`internal (\S+)`).FindAllStringSubmatch(said, -1) {
		nodes = append(nodes, &node{process: p, internal: "http://" + found[1]})
	}
	if len(nodes) != 2 {
		t.Fatalf("it names %d instances:\n%s", len(nodes), said)
	}
	rest(t, nodes...)
	for _, name := range []string{"prefill.toml", "decode.toml", "router.toml", "p0.log", "d0.log",
		"r0.log"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	p.wait(0)
	for _, n := range nodes {
		if _, err := send(t.Context(), http.MethodGet, n.internal+"/live",
			io.Reader(nil)); err == nil {
			t.Errorf("%s still answers", n.internal)
		}
	}
}
