package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestErrorTable(t *testing.T) {
	seen := map[Code]bool{}
	for _, s := range Situations() {
		if seen[s.Code] || s.Status < 400 || s.Type == "" || Lookup(s.Code) != s {
			t.Errorf("%+v", s)
		}
		seen[s.Code] = true
	}
	if s := Lookup("what"); s.Code != CodeInternal || s.Status != 500 {
		t.Errorf("unknown code: %+v", s)
	}
}

func TestErrorOnTheWire(t *testing.T) {
	for _, c := range []struct {
		err     *Error
		status  int
		body    string
		headers map[string]string
	}{
		{
			Errorf(CodeInvalidValue, "top_p", "top_p is <2>"), 400,
			`{"error":{"message":"top_p is <2>","type":"invalid_request_error","param":"top_p",` +
				`"code":"invalid_value"}}`,
			map[string]string{"Retry-After": ""},
		},
		{
			&Error{Code: CodeQueueFull, Message: "full", RetryAfter: 1500 * time.Millisecond}, 429,
			`{"error":{"message":"full","type":"rate_limit_error","param":null,` +
				`"code":"queue_full"}}`,
			map[string]string{"Retry-After": "2", "Content-Type": "application/json"},
		},
		{
			&Error{Code: CodeNotDelivered, Message: "x", Reason: "lease"}, 409,
			`{"error":{"message":"x","type":"invalid_request_error","param":null,` +
				`"code":"not_delivered","reason":"lease"}}`,
			map[string]string{"X-Should-Retry": "false"},
		},
	} {
		w := httptest.NewRecorder()
		WriteError(w, c.err)
		if w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for name, want := range c.headers {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		back := DecodeError(w.Code, w.Body.Bytes())
		back.RetryAfter = c.err.RetryAfter
		if *back != *c.err {
			t.Errorf("read back as %+v", back)
		}
	}
	for _, body := range []string{``, `{"error":"text"}`, `{"error":{"message":"m"}}`, `<html>`} {
		e := DecodeError(502, []byte(body))
		if e.Code != CodeInternal || !strings.Contains(e.Message, "502") {
			t.Errorf("%q: %+v", body, e)
		}
	}
	if !strings.Contains(ContextLength(512, 600, 1).Message,
		"This model's maximum context length is 512 tokens") {
		t.Error("clients look for these words")
	}
}

func TestUsageField(t *testing.T) {
	usage := NewUsage(4, 2, 3)
	for _, c := range []struct {
		field UsageField
		want  string
	}{
		{UsageField{}, `{}`},
		{ShowUsage(nil), `{"usage":null}`},
		{ShowUsage(&usage), `{"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6,` +
			`"prompt_tokens_details":{"cached_tokens":3}}}`},
	} {
		got, err := json.Marshal(struct {
			Usage UsageField `json:"usage,omitzero"`
		}{c.field})
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v", got, err)
		}
	}
}

func TestChunks(t *testing.T) {
	stop := "stop"
	for _, c := range []struct {
		v    any
		want string
	}{
		{
			ChatChunk{
				ID: "chatcmpl-1", Object: ObjectChatChunk, Created: 5, Model: "m",
				Choices: []ChatChunkChoice{{Delta: Delta{Role: "assistant", Content: new("")}}},
				Usage:   ShowUsage(nil),
			},
			`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"m",` +
				`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,` +
				`"finish_reason":null}],"usage":null}`,
		},
		{
			ChatChunk{Choices: []ChatChunkChoice{{FinishReason: &stop}}},
			`{"id":"","object":"","created":0,"model":"","choices":[{"index":0,"delta":{},` +
				`"logprobs":null,"finish_reason":"stop"}]}`,
		},
		{
			CompletionResponse{Choices: []CompletionChoice{{Text: "<&", TokenIDs: []int32{7}}}},
			`{"id":"","object":"","created":0,"model":"","choices":[{"index":0,"text":"<&",` +
				`"logprobs":null,"finish_reason":null,"token_ids":[7]}]}`,
		},
	} {
		got, err := marshal(c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, c.want)
		}
	}
}

func TestEventsThereAndBack(t *testing.T) {
	w := httptest.NewRecorder()
	e := NewEventWriter(w, time.Second)
	if e.Started() || len(w.Header()) != 0 {
		t.Fatal("started before the first event")
	}
	for _, step := range []error{
		e.Send(map[string]string{"a": "1\n2"}), e.KeepAlive(), e.Send([]int{1}),
		e.Fail(Errorf(CodeInternal, "", "oops")),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if w.Header().Get("Content-Type") != "text/event-stream" || w.Code != 200 || !w.Flushed {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	r := NewEventReader(w.Body)
	for _, want := range []string{`{"a":"1\n2"}`, `[1]`, `{"error":{"message":"oops",` +
		`"type":"server_error","param":null,"code":"internal_error"}}`} {
		if data, err := r.Next(); err != nil || string(data) != want {
			t.Fatalf("%s, %v", data, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatal(err)
	}
}

func TestFailBeforeTheFirstEvent(t *testing.T) {
	w := httptest.NewRecorder()
	e := NewEventWriter(w, 0)
	err := e.Fail(Errorf(CodeQueueFull, "", "full"))
	if err != nil || w.Code != 429 || !e.Started() {
		t.Errorf("%d, %v", w.Code, err)
	}
}

func TestEventReader(t *testing.T) {
	next := func(text string) (string, error) {
		data, err := NewEventReader(strings.NewReader(text)).Next()
		return string(data), err
	}
	for text, want := range map[string]string{
		"data: a\n\n":        "a",
		"\n\ndata:a\r\n\r\n": "a",
		": comment\nevent: x\nid: 3\ndata: a\n\n":   "a",
		"data: a\ndata:  b\n\n":                     "a\n b",
		": keep-alive\n\n: keep-alive\n\ndata:\n\n": "",
	} {
		if got, err := next(text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := next("data: a"); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	_, err := next("data: " + strings.Repeat("x", MaxEvent) + "\n\n")
	if !errors.Is(err, ErrEventTooLong) {
		t.Error(err)
	}
	broken := errors.New("reset")
	_, err = NewEventReader(io.MultiReader(strings.NewReader("data: a\n"), fault{broken})).Next()
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

type fault struct{ error }

func (f fault) Read([]byte) (int, error) { return 0, f.error }
