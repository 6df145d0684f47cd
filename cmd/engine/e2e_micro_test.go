package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// caller makes the micro-serving calls of one request, field by field, as a router outside this
// project does.
type caller struct {
	t               *testing.T
	prefill, decode *node
	body            fields
}

// prepare reserves [0, end) on the decode instance.
func (c *caller) prepare(end int) openai.PrepareReceiveResponse {
	c.t.Helper()
	var r openai.PrepareReceiveResponse
	c.tryPrepare(end).decode(c.t, &r)
	return r
}

func (c *caller) tryPrepare(end int) reply {
	c.t.Helper()
	return post(c.t, c.decode.internal+openai.PathPrepareReceive, c.body.with(fields{"end": end}))
}

// send has the prefill instance fill [begin, end).
func (c *caller) send(metadata string, begin, end int) reply {
	c.t.Helper()
	return post(c.t, c.prefill.internal+openai.PathRemoteSend, c.body.with(fields{
		"begin": begin, "end": end, "kv_addr_info": metadata, "recv_rank": 4,
	}))
}

// handOver reserves and fills [0, end).
func (c *caller) handOver(end int) {
	c.t.Helper()
	reserved := c.prepare(end)
	if reserved.PrefixMatchedLength >= end {
		return
	}
	r := c.send(reserved.KVAppendMetadata, reserved.PrefixMatchedLength, end)
	if r.status != http.StatusOK {
		c.t.Fatalf("remote_send: status %d: %s", r.status, r.body)
	}
}

// start generates from begin on.
func (c *caller) start(begin int) reply {
	c.t.Helper()
	return post(c.t, c.decode.internal+openai.PathStartGenerate,
		c.body.with(fields{"begin": begin}))
}

// release drops the reservation, whatever became of it.
func (c *caller) release() {
	c.t.Helper()
	r := post(c.t, c.decode.internal+openai.PathRelease, fields{"user": c.body["user"]})
	if r.status != http.StatusOK {
		c.t.Errorf("release: %d %s", r.status, r.body)
	}
}

// lab is a prefill instance and decode instances that differ in one thing each.
type lab struct {
	t               *testing.T
	prefill, decode *node
	strict, other   *node // on_failure = error; another page size
	requests        int
}

// call is the caller of a new request over a prompt that nobody had before.
func (l *lab) call(t *testing.T, tokens int) *caller {
	l.requests++
	r := rand.New(rand.NewPCG(uint64(l.requests), 7))
	prompt := make([]int32, tokens)
	for i := range prompt {
		prompt[i] = int32(3 + r.IntN(1000))
	}
	return &caller{t: t, prefill: l.prefill, decode: l.decode, body: fields{
		"model": "embedded", "prompt": prompt, "user": fmt.Sprint("cmpl-", l.requests),
		"max_tokens": 12, "temperature": 0, "stream": false, "debug_config": fields{},
		"ignore_eos": true, "return_token_ids": true,
	}}
}

// alone is what one engine by itself answers to the request.
func (c *caller) alone() []int32 {
	c.t.Helper()
	return post(c.t, c.prefill.api+"/v1/completions", c.body).completion(c.t).Choices[0].TokenIDs
}

// answers wants a start from begin to give what one engine gives.
func (c *caller) answers(begin int) {
	c.t.Helper()
	got := c.start(begin).completion(c.t)
	want := c.alone()
	if len(want) != 12 || !slices.Equal(got.Choices[0].TokenIDs, want) {
		c.t.Errorf("tokens %v, one engine gives %v", got.Choices[0].TokenIDs, want)
	}
}

// refuses wants an error of a status and a code whose message has all the words.
func (c *caller) refuses(r reply, status int, code string, words ...string) {
	c.t.Helper()
	gotCode, message := r.failure(c.t)
	if r.status != status || gotCode != code {
		c.t.Errorf("%d %s %q, want %d %s", r.status, gotCode, message, status, code)
	}
	for _, word := range words {
		if !strings.Contains(message, word) {
			c.t.Errorf("%q does not say %q", message, word)
		}
	}
}

// letter is the readable part of a metadata string.
type letter struct {
	Version int     `json:"version"`
	Address string  `json:"address"`
	Lease   string  `json:"lease"`
	Token   string  `json:"token"`
	Epoch   uint64  `json:"epoch"`
	Compat  string  `json:"compat"`
	Models  [][]int `json:"models"`
}

const macSize = 32

// readLetter takes a metadata string apart.
func readLetter(t *testing.T, metadata string) (l letter, mac []byte) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(metadata)
	if err != nil || len(raw) < macSize {
		t.Fatalf("metadata %q: %v", metadata, err)
	}
	text, mac := raw[:len(raw)-macSize], raw[len(raw)-macSize:]
	if err := json.Unmarshal(text, &l); err != nil || l.Version != 1 {
		t.Fatalf("metadata %s: %v", text, err)
	}
	return l, mac
}

// forge puts a letter together with a MAC that was made for another.
func (l letter) forge(t *testing.T, mac []byte) string {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(append(text, mac...))
}

// slots adds up an inner list [nseg, pos, len, ...].
func slots(t *testing.T, list []int) (total int) {
	t.Helper()
	if len(list) != 2*list[0]+1 {
		t.Fatalf("inner list %v", list)
	}
	for i := range list[0] {
		total += list[2+2*i]
	}
	return total
}

// TestMicroServing plays the numbered scenarios of the micro-serving reference on the wire.
func TestMicroServing(t *testing.T) {
	const decode = "[node]\nrole = \"decode\"\n"
	l := &lab{t: t,
		prefill: serveNode(t,
			"[node]\nrole = \"prefill\"\n[transfer]\npeers = [\"127.0.0.1/32\"]\n"),
		decode: serveNode(t, decode),
		strict: serveNode(t, decode+"[transfer]\non_failure = \"error\"\n"),
		other:  serveNode(t, decode+"[kv_cache]\npage_size = 32\n"),
	}
	for _, s := range []struct {
		name string
		run  func(*testing.T, *lab)
	}{
		{"30 and 31, sent twice", sentTwice}, {"49 and 50, windows", windows},
		{"51, segments", scattered}, {"52, metadata", forgeries},
		{"44, 48 and 49, data items", vectors}, {"54, n", fourFold},
		{"61, a cold reservation", cold}, {"62, nothing to send", nothing},
		{"63, a warm reservation", warm}, {"66 and 67, released", released},
		{"68, starts", starts}, {"69, a form on the first token", formed},
		{"70, two answers", branches}, {"72, alone", startsAlone}, {"73, commits", migrates},
	} {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, l)
			rest(t, l.prefill, l.decode, l.strict, l.other)
		})
	}
	for _, n := range []*node{l.prefill, l.decode, l.strict, l.other} {
		n.stop()
	}
}

func windows(t *testing.T, l *lab) {
	const n = 100
	c := l.call(t, n)
	for _, end := range []int{n, n + 1, -(n + 1)} {
		c.refuses(c.tryPrepare(end), 400, "invalid_window")
	}
	reserved := c.prepare(-1)
	string := reserved.KVAppendMetadata
	for _, w := range [][2]int{{0, n}, {0, -n}, {0, -(n + 1)}, {99, 99}, {60, 50}, {-1, 99}} {
		c.refuses(c.send(string, w[0], w[1]), 400, "invalid_window")
	}
	// A window that is one, but not that of the reservation.
	c.refuses(c.send(string, 1, 99), 400, "invalid_metadata")
	if failed := l.decode.metric("engine_transfer_failures_total"); failed != 0 {
		t.Errorf("%v transfers failed that should not have begun", failed)
	}
	if r := c.send(string, 0, -1); r.status != http.StatusOK {
		t.Errorf("end -1: %d %s", r.status, r.body)
	}
	c.answers(99)
}

// scattered makes the free pages lie apart, so that a reservation has several segments.
func scattered(t *testing.T, l *lab) {
	first, second, c := l.call(t, 49), l.call(t, 49), l.call(t, 200)
	first.prepare(-1)
	second.prepare(-1)
	first.release()
	reserved := c.prepare(-1)
	second.release()
	letter, _ := readLetter(t, reserved.KVAppendMetadata)
	list := letter.Models[0]
	if list[0] < 2 || slots(t, list) != 199 {
		t.Errorf("segments %v, want 199 slots in several pieces", list)
	}
	for i := range list[0] - 1 {
		if end := list[1+2*i] + list[2+2*i]; end == list[3+2*i] {
			t.Errorf("segments %v: two of them touch", list)
		}
	}
	if r := c.send(reserved.KVAppendMetadata, 0, 199); r.status != http.StatusOK {
		t.Fatalf("%d %s", r.status, r.body)
	}
	c.answers(199)
}

func fourFold(t *testing.T, l *lab) {
	c := l.call(t, 40)
	reserved := c.prepare(-1)
	c.body["n"] = 4
	if r := c.send(reserved.KVAppendMetadata, 0, 39); r.status != http.StatusOK {
		t.Errorf("%d %s", r.status, r.body)
	}
	delete(c.body, "n")
	c.answers(39)
}

func cold(t *testing.T, l *lab) {
	c := l.call(t, 100)
	reserved := c.prepare(-1)
	letter, _ := readLetter(t, reserved.KVAppendMetadata)
	if reserved.PrefixMatchedLength != 0 || slots(t, letter.Models[0]) != 99 {
		t.Errorf("%d matched, segments %v", reserved.PrefixMatchedLength, letter.Models)
	}
	if len(letter.Token) != 32 || "http://"+letter.Address != l.decode.internal {
		t.Errorf("%+v", letter)
	}
	eventually(t, patience, func() error {
		pinned := l.decode.metric("engine_kv_pages", `state="pinned"`)
		prepared := l.decode.metric("engine_requests", `state="prepared"`)
		all := l.decode.metric("engine_requests")
		if pinned != 7 || prepared != 1 || all != 1 {
			return fmt.Errorf("%v pages held, %v requests prepared, %v in all", pinned, prepared,
				all)
		}
		return nil
	})
	c.refuses(c.tryPrepare(-1), 409, "request_id_in_use")
	c.release()
}

func nothing(t *testing.T, l *lab) {
	c := l.call(t, 40)
	for _, end := range []int{0, -40} {
		reserved := c.prepare(end)
		letter, _ := readLetter(t, reserved.KVAppendMetadata)
		if reserved.PrefixMatchedLength != 0 || !slices.Equal(letter.Models[0], []int{0}) {
			t.Errorf("%d matched, %v", reserved.PrefixMatchedLength, letter.Models)
		}
		if held := l.decode.metric("engine_kv_pages", `state="pinned"`); held != 0 {
			t.Errorf("%v pages are held", held)
		}
		c.answers(0)
	}
}

// warm is the walk through the calls of the reference: 80 of 100 tokens are cached on the receiver.
func warm(t *testing.T, l *lab) {
	c := l.call(t, 100)
	prompt := c.body["prompt"].([]int32)
	before := l.call(t, 1)
	before.body["prompt"] = append(slices.Clone(prompt[:80]), 9, 9)
	before.handOver(80)
	before.answers(80)

	reserved := c.prepare(-1)
	letter, _ := readLetter(t, reserved.KVAppendMetadata)
	if reserved.PrefixMatchedLength != 80 || slots(t, letter.Models[0]) != 19 {
		t.Errorf("%d matched, %v", reserved.PrefixMatchedLength, letter.Models)
	}
	var sent openai.RemoteSendResponse
	c.send(reserved.KVAppendMetadata, 80, 99).decode(t, &sent)
	if sent.SentTokens != 19 {
		t.Errorf("%+v", sent)
	}
	events := open(t, c.decode.internal+openai.PathStartGenerate, c.body.with(fields{
		"begin": 99, "stream_options": fields{"include_usage": true}}))
	var ids []int32
	var last openai.CompletionResponse
	for {
		var chunk openai.CompletionResponse
		if !events.next(&chunk) {
			break
		}
		for _, choice := range chunk.Choices {
			ids = append(ids, choice.TokenIDs...)
		}
		last = chunk
	}
	if want := c.alone(); !slices.Equal(ids, want) {
		t.Errorf("tokens %v, one engine gives %v", ids, want)
	}
	if u := last.Usage.Usage; len(last.Choices) != 0 || u == nil || u.PromptTokens != 100 ||
		u.CompletionTokens != 12 || u.PromptTokensDetails.CachedTokens != 80 {
		t.Errorf("the last event is %+v", last)
	}
}

func released(t *testing.T, l *lab) {
	c := l.call(t, 50)
	reserved := c.prepare(-1)
	c.release()
	c.refuses(c.send(reserved.KVAppendMetadata, 0, 49), 404, "reservation_not_found")
	c.refuses(c.start(49), 404, "reservation_not_found", c.body["user"].(string))
	c.release()
}

func starts(t *testing.T, l *lab) {
	c := l.call(t, 100)
	c.refuses(c.start(99), 404, "reservation_not_found")
	c.refuses(c.start(101), 404, "reservation_not_found")
	// Before delivery: computed here, or refused, as transfer.on_failure says.
	c.prepare(-1)
	c.refuses(c.start(100), 400, "invalid_window")
	c.answers(99)
	c = l.call(t, 100)
	c.decode = l.strict
	reserved := c.prepare(-1)
	c.refuses(c.start(99), 409, "not_delivered")
	if r := c.send(reserved.KVAppendMetadata, 0, 99); r.status != http.StatusOK {
		t.Errorf("after a start that came too early: %d %s", r.status, r.body)
	}
	c.answers(99)
	c.refuses(c.start(99), 404, "reservation_not_found") // It is used up.
	// Before the prepared end: the gap is computed.
	c = l.call(t, 100)
	c.handOver(99)
	c.answers(50)
	// Another prompt than the one that was prepared.
	c = l.call(t, 30)
	c.handOver(29)
	other := *c
	other.body = c.body.with(fields{"prompt": []int32{5, 6, 7}})
	c.refuses(other.start(2), 400, "invalid_value")
	c.answers(29)
}

func startsAlone(t *testing.T, l *lab) {
	c := l.call(t, 60)
	c.answers(0)
	c = l.call(t, 60)
	delete(c.body, "user")
	c.answers(0)
}
