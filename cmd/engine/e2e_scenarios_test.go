package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// commit keeps what was delivered for the request.
func (c *caller) commit() reply {
	c.t.Helper()
	return post(c.t, c.decode.internal+openai.PathCommit, fields{"user": c.body["user"]})
}

// migrates moves the keys and values of a prompt that nobody starts.
func migrates(t *testing.T, l *lab) {
	c := l.call(t, 200)
	c.refuses(c.commit(), 404, "reservation_not_found", c.body["user"].(string))
	reserved := c.prepare(-1)
	c.refuses(c.commit(), 409, "not_delivered", "[0, 199)")
	if r := c.send(reserved.KVAppendMetadata, 0, 199); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	var done openai.CommitResponse
	c.commit().decode(t, &done)
	if done.Status != "ok" || done.CommittedTokens != 199 {
		t.Errorf("%+v", done)
	}
	c.refuses(c.commit(), 404, "reservation_not_found")
	c.refuses(c.start(199), 404, "reservation_not_found")
	rest(t, l.prefill, l.decode) // All of its pages are free or cached.
	got := post(t, l.decode.api+"/v1/completions", c.body).completion(t)
	if u := got.Usage.Usage; u.PromptTokensDetails.CachedTokens != 199 ||
		!slices.Equal(got.Choices[0].TokenIDs, c.alone()) {
		t.Errorf("%+v %v, one engine gives %v", u, got.Choices[0].TokenIDs, c.alone())
	}
	// Of nothing, and of what was here already, there is nothing to deliver.
	c = l.call(t, 40)
	c.prepare(0)
	if c.commit().decode(t, &done); done.CommittedTokens != 0 {
		t.Errorf("%+v", done)
	}
	c.handOver(39)
	c.commit().decode(t, &done)
	if again := c.prepare(39); again.PrefixMatchedLength != 38 {
		t.Errorf("%d tokens matched, want all but the window's last", again.PrefixMatchedLength)
	}
	c.release()
}

// branches draws two answers from one delivered prompt.
func branches(t *testing.T, l *lab) {
	c := l.call(t, 90)
	c.body["n"], c.body["temperature"], c.body["seed"] = 2, 0.9, 7
	want := post(t, l.prefill.api+"/v1/completions", c.body).completion(t)
	c.handOver(89)
	got := c.start(89).completion(t)
	if len(got.Choices) != 2 || len(want.Choices) != 2 ||
		slices.Equal(want.Choices[0].TokenIDs, want.Choices[1].TokenIDs) {
		t.Fatalf("%+v, want %+v", got.Choices, want.Choices)
	}
	for i := range got.Choices {
		if !slices.Equal(got.Choices[i].TokenIDs, want.Choices[i].TokenIDs) {
			t.Errorf("answer %d is %v, one engine gives %v", i, got.Choices[i].TokenIDs,
				want.Choices[i].TokenIDs)
		}
	}
	if u := got.Usage.Usage; u.PromptTokens != 90 || u.CompletionTokens != 24 {
		t.Errorf("usage %+v", u)
	}
}

// formed leaves one prompt token to a start whose output has a form: the first token obeys it.
func formed(t *testing.T, l *lab) {
	c := l.call(t, 60)
	c.body["response_format"] = fields{"type": "json_schema", "json_schema": fields{"name": "x",
		"schema": fields{"type": "object", "properties": fields{"a": fields{"type": "integer"}},
			"required": []string{"a"}, "additionalProperties": false}}}
	c.body["max_tokens"], c.body["temperature"], c.body["seed"] = 40, 1.5, 3
	delete(c.body, "ignore_eos")
	c.handOver(59)
	got := c.start(59).completion(t).Choices[0]
	var object struct{ A *int }
	if err := json.Unmarshal([]byte(got.Text), &object); err != nil || object.A == nil ||
		got.Text[0] != '{' {
		t.Errorf("%q: %v", got.Text, err)
	}
	if want := c.alone(); !slices.Equal(got.TokenIDs, want) {
		t.Errorf("%v, one engine gives %v", got.TokenIDs, want)
	}
}

// TestScenario74OnTheWire has one instance send to itself, under one id.
func TestScenario74OnTheWire(t *testing.T) {
	n := serveNode(t, "[node]\nrole = \"all\"\n")
	l := &lab{t: t, prefill: n, decode: n}
	for tokens := 2; tokens < 200; tokens += 61 {
		c := l.call(t, tokens)
		c.handOver(tokens - 1)
		c.answers(tokens - 1)
	}
	rest(t, n)
	n.stop()
}

// squeezed is an instance whose pages are far too few for what is asked of it at once.
const squeezed = "[node]\nrole = \"all\"\n[model]\nmax_model_len = 96\n" +
	"[kv_cache]\nmemory = \"384KiB\"\n"

// TestScenario71OnTheWire: requests that lose their pages go on where they were. No token comes
// twice, none is wrong, in no branch of any answer.
func TestScenario71OnTheWire(t *testing.T) {
	tight, roomy := serveNode(t, squeezed), serveNode(t, "[node]\nrole = \"all\"\n")
	l := &lab{t: t, prefill: roomy, decode: tight}
	var wait sync.WaitGroup
	for i := range 6 {
		c := l.call(t, 20+i)
		c.body["n"], c.body["max_tokens"], c.body["seed"] = 2, 60, 3*i
		c.body["temperature"], c.body["frequency_penalty"] = 0.8, 0.5
		wait.Go(func() {
			want := post(t, roomy.api+"/v1/completions", c.body).completion(t)
			got := post(t, tight.api+"/v1/completions", c.body).completion(t)
			for k := range want.Choices {
				if len(want.Choices[k].TokenIDs) != 60 ||
					!slices.Equal(got.Choices[k].TokenIDs, want.Choices[k].TokenIDs) {
					t.Errorf("request %d, answer %d: %v, with room enough %v", i, k,
						got.Choices[k].TokenIDs, want.Choices[k].TokenIDs)
				}
			}
		})
	}
	wait.Wait()
	if tight.metric("engine_preemptions_total") == 0 {
		t.Error("nobody lost its pages: the pool is too large for this test")
	}
	if roomy.metric("engine_preemptions_total") != 0 {
		t.Error("somebody lost its pages where there is room")
	}
	rest(t, tight, roomy)
	tight.stop()
	roomy.stop()
}

// TestScenario40OnTheWire: a pinned prompt is found after others have filled the pool many times;
// one that is not has gone. What would leave too little is refused.
func TestScenario40OnTheWire(t *testing.T) {
	n := serveNode(t, squeezed)
	l := &lab{t: t, prefill: n, decode: n}
	ask := func(c *caller) openai.CompletionResponse {
		t.Helper()
		return post(t, n.api+"/v1/completions", c.body).completion(t)
	}
	pinned, other := l.call(t, 33), l.call(t, 33)
	pinned.body["debug_config"] = fields{"pinned_system_prompt": true}
	first := ask(pinned)
	ask(other)
	delete(pinned.body, "debug_config")
	for range 12 {
		ask(l.call(t, 80))
	}
	again, gone := ask(pinned), ask(other)
	if cached := again.Usage.Usage.PromptTokensDetails.CachedTokens; cached != 32 {
		t.Errorf("%d tokens of the pinned prompt were found, want 32", cached)
	}
	if cached := gone.Usage.Usage.PromptTokensDetails.CachedTokens; cached != 0 {
		t.Errorf("%d tokens of a prompt that was not pinned were found", cached)
	}
	if !slices.Equal(again.Choices[0].TokenIDs, first.Choices[0].TokenIDs) {
		t.Errorf("%v, at first %v", again.Choices[0].TokenIDs, first.Choices[0].TokenIDs)
	}
	refused := 0
	for range 6 {
		large := l.call(t, 70)
		large.body["debug_config"] = fields{"pinned_system_prompt": true}
		if r := post(t, n.api+"/v1/completions", large.body); r.status != http.StatusOK {
			large.refuses(r, 400, "invalid_value", "must leave")
			refused++
		}
	}
	if refused == 0 {
		t.Error("any number of prompts was pinned")
	}
	if leaked := n.metric("engine_kv_pages_leaked"); leaked != 0 {
		t.Errorf("%v pages leaked", leaked)
	}
	n.stop()
}

// sentTwice sends one prompt twice: of the second time all but one token is taken from the sender's
// prefix cache, its last page rolled back to where the prompts part.
func sentTwice(t *testing.T, l *lab) {
	c := l.call(t, 100)
	want := c.alone() // It is in the sender's prefix cache from now on, beyond the prompt's end.
	for _, decode := range []*node{l.decode, l.strict} {
		c.decode = decode
		reserved := c.prepare(-1)
		before := l.prefill.metric("engine_prefix_tokens_matched_total")
		var sent openai.RemoteSendResponse
		c.send(reserved.KVAppendMetadata, 0, 99).decode(t, &sent)
		if sent.SentTokens != 99 {
			t.Errorf("%d tokens were sent", sent.SentTokens)
		}
		eventually(t, patience, func() error {
			found := l.prefill.metric("engine_prefix_tokens_matched_total") - before
			if found != 98 {
				return fmt.Errorf("%v tokens were found, want 98", found)
			}
			return nil
		})
		if got := c.start(99).completion(t).Choices[0].TokenIDs; !slices.Equal(got, want) {
			t.Errorf("tokens %v, one engine gives %v", got, want)
		}
	}
	// From where the receiver's match ends nothing goes page to page, and one token is computed.
	c.body["user"] = "third"
	reserved := c.prepare(-1)
	if reserved.PrefixMatchedLength != 98 {
		t.Fatalf("%d tokens matched", reserved.PrefixMatchedLength)
	}
	var sent openai.RemoteSendResponse
	c.send(reserved.KVAppendMetadata, 98, 99).decode(t, &sent)
	if sent.SentTokens != 1 {
		t.Errorf("%d tokens were sent", sent.SentTokens)
	}
	if got := c.start(99).completion(t).Choices[0].TokenIDs; !slices.Equal(got, want) {
		t.Errorf("tokens %v, one engine gives %v", got, want)
	}
}
