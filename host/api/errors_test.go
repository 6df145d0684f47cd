package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/openai"
)

// TestEveryErrorHasOneShape sends what each route refuses.
func TestEveryErrorHasOneShape(t *testing.T) {
	b := newBench(t, "And")
	template, err := b.model.Tokenizer.ParseChatTemplate("bare", "{{ messages[0].content }}")
	if err != nil {
		t.Fatal(err)
	}
	b.model.Template = template
	const messages = `"messages":[{"role":"user","content":"a"}]`
	schema := func(s string) string {
		return `{` + messages + `,"response_format":{"type":"json_schema",` +
			`"json_schema":{"schema":` + s + `}}}`
	}
	for _, c := range []struct {
		method, path, body string
		header             [2]string
		status             int
		code, param, says  string
	}{
		{method: "GET", path: "/v2", status: 404, code: "unknown_url", says: "/v2"},
		{method: "GET", path: chatPath, status: 405, code: "method_not_allowed", says: "POST"},
		{method: "POST", path: "/v1/models", status: 405, code: "method_not_allowed"},
		{method: "GET", path: "/v1/models/gpt", status: 404, code: "model_not_found",
			param: "model", says: "org/m"},
		{path: completionsPath, body: `{"model":"gpt","prompt":"a"}`, status: 404,
			code: "model_not_found", param: "model"},
		{path: completionsPath, body: strings.Repeat(" ", 1<<16+1), status: 413,
			code: "request_too_large", says: "65536"},
		{path: completionsPath, header: [2]string{"X-Long", strings.Repeat("a", 5000)}, status: 431,
			code: "headers_too_large", says: "4096"},
		{path: completionsPath, body: `{"prompt":"` + strings.Repeat("a", 60000) + `"}`,
			status: 400, code: "context_length_exceeded", param: "prompt",
			says: "This model's maximum context length is 512 tokens"},
		{path: chatPath, body: `{"messages":[{"role":"user","content":"` +
			strings.Repeat("a", 60000) + `"}]}`, status: 400, code: "context_length_exceeded",
			param: "messages"},
		{path: completionsPath, body: `{"prompt":"a","n":4}`, status: 400, code: "invalid_value",
			param: "n", says: "at most 3"},
		{path: completionsPath, body: `{"prompt":"a","logit_bias":{"5000":1}}`, status: 400,
			code: "invalid_value", param: "logit_bias", says: "1024"},
		{path: completionsPath, body: `{"prompt":"a"}`, header: [2]string{"X-Deadline-Ms", "0"},
			status: 400, code: "invalid_value", param: "X-Deadline-Ms", says: "at least 1"},
		{path: completionsPath, body: `{"prompt":"a"}`, header: [2]string{"X-Priority", "high"},
			status: 400, code: "invalid_value", param: "X-Priority"},
		{path: completionsPath, body: `{"prompt":"a"}`, header: [2]string{"X-Policy-Tag", "-1"},
			status: 400, code: "invalid_value", param: "X-Policy-Tag"},
		{path: chatPath, body: schema(`{"properties":{"a/b":{"multipleOf":2}}}`), status: 400,
			code: "invalid_json_schema", param: "response_format.json_schema.schema",
			says: `"multipleOf" at /properties/a~1b`},
		{path: chatPath, body: `{` + messages + `,"tools":[{"type":"function","function":` +
			`{"name":"f"}}]}`, status: 400, code: "unsupported_parameter", param: "tools"},
	} {
		if c.method == "" {
			c.method = "POST"
		}
		var headers []string
		if c.header[0] != "" {
			headers = c.header[:]
		}
		w := b.send(c.method, c.path, c.body, headers...)
		e := openai.DecodeError(w.Code, w.Body.Bytes())
		if w.Code != c.status || string(e.Code) != c.code || e.Param != c.param ||
			!strings.Contains(e.Message, c.says) || w.Header().Get("X-Request-Id") == "" {
			t.Errorf("%s %s %.80s: %d %s at %q: %s", c.method, c.path, c.body, w.Code, e.Code,
				e.Param, e.Message)
		}
	}
	if len(b.source.asks) != 0 {
		t.Errorf("%d of them reached the source", len(b.source.asks))
	}
}

func TestOneModel(t *testing.T) {
	b := newBench(t, "")
	for _, name := range []string{"m", "org/m"} {
		var m openai.Model
		w := b.send("GET", "/v1/models/"+name, "")
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || m.ID != name ||
			m.MaxModelLen != 512 {
			t.Errorf("%s: %v, %s", name, err, w.Body)
		}
	}
}
