package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// tinyTokenizer knows a few letters, a BOS that it adds, and bytes.
const tinyTokenizer = `{
	"added_tokens": [
		{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": true},
		{"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": true}],
	"normalizer": null, "pre_tokenizer": null,
	"post_processor": {"type": "TemplateProcessing",
		"single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
			{"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
		"special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
	"decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
	"model": {"type": "BPE", "dropout": null, "unk_token": "<s>",
		"continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
		"byte_fallback": true, "ignore_merges": false,
		"vocab": {"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "<0xC3>": 5, "<0xA9>": 6, "u": 7,
			":": 8},
		"merges": ["a b"]}
}`

// tinyServer serves no generation, only what asks about tokens. template is the model's; "" is
// none.
func tinyServer(t *testing.T, template string) http.Handler {
	t.Helper()
	tok, err := tokenizer.Load(fstest.MapFS{
		"tokenizer.json": &fstest.MapFile{Data: []byte(tinyTokenizer)}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{Names: []string{"tiny"}, Context: 99, Tokenizer: tok,
		TemplateError: tokenizer.ErrNoTemplate}
	if template != "" {
		if m.Template, m.TemplateError = tok.ParseChatTemplate("tiny", template); err != nil {
			t.Fatal(err)
		}
	}
	return New(Options{Model: func() (*Model, *openai.Error) { return m, nil },
		Source: noSource{}, MaxBody: 1 << 20}).API()
}

// noSource generates nothing.
type noSource struct{}

func (noSource) Generate(context.Context, generation.Request) (generation.Stream, error) {
	return nil, generation.Errorf(generation.CodeInternal, "nothing is generated here")
}

// ask posts a body and returns the status and the answer.
func ask(handler http.Handler, path, body string) (int, string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// plainTemplate writes u:TEXT</s> for every turn, and a: where the answer begins.
const plainTemplate = `{% for m in messages %}{% if m.role == "system" %}` +
	`{{ raise_exception("no system turns, please") }}{% endif %}` +
	`u:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}a:{% endif %}`

func TestTokenizeAndBack(t *testing.T) {
	server := tinyServer(t, plainTemplate)
	const chat = `"messages":[{"role":"user","content":"ab"}]`
	for _, c := range []struct{ path, body, want string }{
		{"/tokenize", `{"prompt":"aab</s>"}`, `{"count":4,"max_model_len":99,"tokens":[0,2,4,1]}`},
		{"/tokenize", `{"prompt":"é","add_special_tokens":false,"return_token_strs":true}`,
			`{"count":2,"max_model_len":99,"tokens":[5,6],"token_strs":["\u003c0xC3\u003e",` +
				`"\u003c0xA9\u003e"]}`},
		{"/tokenize", `{"prompt":"","add_special_tokens":false,"model":"tiny"}`,
			`{"count":0,"max_model_len":99,"tokens":[]}`},
		{"/tokenize", `{` + chat + `}`,
			`{"count":6,"max_model_len":99,"tokens":[7,8,4,1,2,8]}`},
		{"/tokenize", `{` + chat + `,"add_generation_prompt":false,"add_special_tokens":true}`,
			`{"count":5,"max_model_len":99,"tokens":[0,7,8,4,1]}`},
		{"/detokenize", `{"tokens":[0,2,4,1]}`, `{"prompt":"\u003cs\u003eaab\u003c/s\u003e"}`},
		{"/detokenize", `{"tokens":[5,6]}`, `{"prompt":"é"}`},
		{"/detokenize", `{"tokens":[]}`, `{"prompt":""}`},
	} {
		for _, prefix := range []string{"", "/v1"} {
			status, got := ask(server, prefix+c.path, c.body)
			if status != http.StatusOK || got != c.want {
				t.Errorf("%s %s: %d %s\nwant %s", c.path, c.body, status, got, c.want)
			}
		}
	}
}

// TestChatsThatTheTemplateRefuses: what a template cannot show, or will not, is the client's
// to change, and it is told what the template said.
func TestChatsThatTheTemplateRefuses(t *testing.T) {
	const system = `{"messages":[{"role":"system","content":"ab"}]`
	const tools = `{"messages":[{"role":"user","content":"ab"}],"tools":[{"type":"function",` +
		`"function":{"name":"f"}}]`
	for _, c := range []struct{ template, body, code, param, message string }{
		{plainTemplate, system + `}`, "invalid_value", `"messages"`,
			"the model's chat template refuses this conversation: no system turns, please"},
		{`{{ nosuch() }}`, system + `}`, "invalid_value", `"messages"`,
			"cannot show this conversation: chat template tiny: "},
		{"", system + `}`, "invalid_value", `"messages"`,
			"this model cannot chat: no chat template; use /v1/completions"},
		{plainTemplate, tools + `}`, "unsupported_parameter", `"tools"`, "shows no tools"},
		{plainTemplate, tools + `,"tool_choice":"required"}`, "unsupported_parameter", `"tools"`,
			"shows no tools"},
	} {
		server := tinyServer(t, c.template)
		for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
			status, got := ask(server, path, c.body)
			fault := openai.DecodeError(status, []byte(got))
			if status != http.StatusBadRequest || string(fault.Code) != c.code ||
				!strings.Contains(fault.Message, c.message) ||
				!strings.Contains(got, `"param":`+c.param) {
				t.Errorf("%s %s: %d %s\nwant %s", path, c.body, status, got, c.message)
			}
		}
	}
}

func TestTokenRoutesRefuse(t *testing.T) {
	server := tinyServer(t, plainTemplate)
	for _, c := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/detokenize", `{"tokens":[2,77]}`, 400, "tokens[1] is 77, which is not a token"},
		{"/detokenize", `{"tokens":[2],"model":"x"}`, 404, "model_not_found"},
		{"/tokenize", `{"prompt":"a","model":"x"}`, 404, "model_not_found"},
		{"/tokenize", `{"prompt":`, 400, "invalid_json"},
		{"/tokenize", `{"prompt":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "request_too_large"},
		{"/v1/tokenizer", `{}`, 404, "unknown_url"},
	} {
		status, got := ask(server, c.path, c.body)
		if status != c.status || !strings.Contains(got, c.code) {
			t.Errorf("%s %.60s: %d %s", c.path, c.body, status, got)
		}
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/tokenize", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
