package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// shapings are the fields that bear on which tokens come and how they are told.
func shapings() map[string]fields {
	return map[string]fields{
		"log-probabilities": {"logprobs": 3},
		"penalties": {"presence_penalty": 1.5, "frequency_penalty": 0.7, "logprobs": 1,
			"repetition_penalty": 1.3},
		"biases":     {"logit_bias": fields{"1": 50, "44": 3}, "min_tokens": 20},
		"floor":      {"min_p": 0.1, "n": 3},
		"echo":       {"echo": true, "n": 2, "top_k": 7},
		"stop":       {"stop": "the ", "min_tokens": 4},
		"greedy":     {"temperature": 0, "logprobs": 0},
		"wishes":     {"priority": 4, "predicted_output": 9, "ignore_eos": true},
		"any object": {"response_format": fields{"type": "json_object"}},
	}
}

// TestShapedOutputIsTheSameHandedOver sends requests of every kind to one instance and through a
// router: choices, log-probabilities and counts must be equal to the last digit.
func TestShapedOutputIsTheSameHandedOver(t *testing.T) {
	alone := serveNode(t, "version = 1\n[node]\nrole = \"all\"\n")
	c := startCluster(t, clusterOptions{})
	base := fields{"prompt": "In the beginning God created the heaven and the earth. And the earth",
		"max_tokens": 24, "seed": 7, "temperature": 0.9}
	for name, more := range shapings() {
		one := post(t, alone.api+"/v1/completions", base.with(more))
		two := post(t, c.router.api+"/v1/completions", base.with(more))
		want, got := one.completion(t), two.completion(t)
		a, b := text(t, want.Choices), text(t, got.Choices)
		if a != b || want.Usage.Usage.CompletionTokens != got.Usage.Usage.CompletionTokens {
			t.Errorf("%s: alone %s\nhanded over %s", name, a, b)
		}
	}
	rest(t, alone)
	c.rest(t)
}

func text(t *testing.T, choices []openai.CompletionChoice) string {
	t.Helper()
	data, err := json.Marshal(choices)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAnswersShareTheirPrompt wants the prompt of five answers to be computed once: the others find
// it in the prefix cache.
func TestAnswersShareTheirPrompt(t *testing.T) {
	alone := serveNode(t, "version = 1\n[node]\nrole = \"all\"\n")
	before := alone.metric("engine_prefix_tokens_matched_total")
	r := post(t, alone.api+"/v1/completions", fields{"n": 5, "max_tokens": 8,
		"prompt": strings.Repeat("And it came to pass ", 20)}).completion(t)
	matched := alone.metric("engine_prefix_tokens_matched_total") - before
	prompt := float64(r.Usage.Usage.PromptTokens)
	if want := 4 * (prompt - 17); len(r.Choices) != 5 || matched < want {
		t.Errorf("%d answers to %v prompt tokens matched %v tokens, want at least %v",
			len(r.Choices), prompt, matched, want)
	}
}
