package api

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/sample"
)

const completionsPath, chatPath = "/v1/completions", "/v1/chat/completions"

func TestEveryFieldReachesTheSource(t *testing.T) {
	b := newBench(t, "And")
	w := b.send("POST", completionsPath, `{"prompt":[5,6],"temperature":0.5,"top_k":9,"top_p":0.8,
		"min_p":0.1,"seed":11,"max_tokens":20,"max_completion_tokens":30,"min_tokens":2,
		"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.2,
		"logit_bias":{"7":-3},"logprobs":2,"ignore_eos":true,"predicted_output":40,"user":"u"}`,
		"X-Priority", "-5", "X-Deadline-Ms", "250", "X-Tenant", "blue", "X-Class", "batch",
		"X-Policy-Tag", "18446744073709551615", "X-Policy-Group", "77", "X-Request-Id", "mine")
	if w.Code != 200 || w.Header().Get("X-Request-Id") != "mine" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	want := generation.Request{
		ID: "u", RequestID: "mine",
		Prompt: []int32{5, 6}, MaxTokens: 30, MinTokens: 2, Logprobs: true, TopLogprobs: 2,
		IgnoreEOS: true, Sampling: sample.Params{Temperature: 0.5, TopK: 9, TopP: 0.8, MinP: 0.1,
			Seed: 11, RepetitionPenalty: 1.2, FrequencyPenalty: -1, PresencePenalty: 1,
			LogitBias: map[int32]float64{7: -3}},
		Hints: generation.Hints{Priority: -5, Deadline: 250 * time.Millisecond, Tenant: "blue",
			Class: generation.ClassBatch, PredictedOutput: 40, Tag: 1<<64 - 1, Group: 77},
	}
	if got := b.source.asks[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	b.send("POST", completionsPath, `{"prompt":"a","priority":3}`, "X-Priority", "9")
	if got := b.source.asks[1].Hints.Priority; got != 3 {
		t.Errorf("the field's priority is 3, the source got %d", got)
	}
}

func TestAnswersToOnePromptFollowTheFirst(t *testing.T) {
	b := newBench(t, "And God said")
	var r openai.CompletionResponse
	b.post(completionsPath, `{"prompt":["In","The"],"n":3,"seed":4,"echo":true}`, &r)
	if len(r.Choices) != 6 || len(b.source.asks) != 6 {
		t.Fatalf("%d choices, %d requests", len(r.Choices), len(b.source.asks))
	}
	for i, c := range r.Choices {
		want := []string{"In", "The"}[i/3] + "And God said"
		if c.Index != i || c.Text != want || *c.FinishReason != "stop" {
			t.Errorf("choice %d: %d %q", i, c.Index, c.Text)
		}
	}
	seeds, prompt, group := map[uint64]int{}, 0, b.source.asks[0].Hints.Group
	for i, ask := range b.source.asks {
		if ask.Hints.Group == 0 || ask.Hints.Group != group {
			t.Errorf("request %d of one call is in group %d, the first in %d", i,
				ask.Hints.Group, group)
		}
		seeds[ask.Sampling.Seed]++
		if i < 2 { // The first answer to each prompt comes first.
			prompt += len(ask.Prompt)
			if ask.Sampling.Seed != 4 {
				t.Errorf("request %d has seed %d", i, ask.Sampling.Seed)
			}
		}
	}
	if !reflect.DeepEqual(seeds, map[uint64]int{4: 2, 5: 2, 6: 2}) {
		t.Errorf("seeds %v", seeds)
	}
	u := r.Usage.Usage
	if u.PromptTokens != prompt || u.PromptTokensDetails.CachedTokens != 6 {
		t.Errorf("usage %+v, the prompts have %d tokens", u, prompt)
	}
}

func TestCompletionLogprobs(t *testing.T) {
	b := newBench(t, "And God said")
	var r openai.CompletionResponse
	b.post(completionsPath, `{"prompt":"In","logprobs":2,"return_token_ids":true}`, &r)
	c := r.Choices[0]
	l, n := c.Logprobs, len(c.TokenIDs)
	if strings.Join(l.Tokens, "") != c.Text || len(l.TokenLogprobs) != n ||
		len(l.TopLogprobs) != n || len(l.TextOffset) != n || len(l.Ranked) != n {
		t.Fatalf("%+v of %q", l, c.Text)
	}
	for i, token := range l.Tokens {
		if !strings.HasPrefix(c.Text[l.TextOffset[i]:], token) || l.TokenLogprobs[i] != -0.5 ||
			l.Ranked[i][0].ID != c.TokenIDs[i] || len(l.Ranked[i]) != 4 ||
			l.Ranked[i][3].Logprob != least {
			t.Errorf("token %d %q at %d: %+v", i, token, l.TextOffset[i], l.Ranked[i])
		}
	}
	var none openai.CompletionResponse
	b.post(completionsPath, `{"prompt":"In","logprobs":0}`, &none)
	if l := none.Choices[0].Logprobs; l == nil || l.TopLogprobs != nil || l.Ranked != nil {
		t.Errorf("%+v", l)
	}
	var parts []string
	for _, e := range events[openai.CompletionResponse](b, completionsPath,
		`{"prompt":"In","logprobs":0,"stream":true}`) {
		if l := e.Choices[0].Logprobs; l != nil {
			parts = append(parts, l.Tokens...)
		}
	}
	if !reflect.DeepEqual(parts, l.Tokens) {
		t.Errorf("streamed %q, whole %q", parts, l.Tokens)
	}
}

func TestChatLogprobs(t *testing.T) {
	b := newBench(t, "And ü")
	var r openai.ChatResponse
	b.post(chatPath, `{"messages":[{"role":"user","content":"a"}],"logprobs":true,
		"top_logprobs":1}`, &r)
	var bytes []byte
	for _, l := range r.Choices[0].Logprobs.Content {
		for _, c := range l.Bytes {
			bytes = append(bytes, byte(c))
		}
		if l.Logprob != -0.5 || len(l.TopLogprobs) != 2 {
			t.Errorf("%+v", l)
		}
	}
	if string(bytes) != "And ü" {
		t.Errorf("%q", bytes)
	}
}

func TestStopStringsWaitForMinTokens(t *testing.T) {
	b := newBench(t, "And God said, And God saw")
	var r openai.CompletionResponse
	b.post(completionsPath, `{"prompt":"In","stop":["God s"]}`, &r)
	if r.Choices[0].Text != "And " || *r.Choices[0].FinishReason != "stop" {
		t.Errorf("%q", r.Choices[0].Text)
	}
	b.post(completionsPath, `{"prompt":"In","stop":["God s"],"min_tokens":4}`, &r)
	if r.Choices[0].Text != "And God said, And " {
		t.Errorf("%q", r.Choices[0].Text)
	}
}
