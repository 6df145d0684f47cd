package api

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/kvrelay/engine/host/tokenizer"
)

// cases are outputs and what is in them.
var callCases = []struct {
	name, style string
	forced      bool
	text        string
	content     string
	calls       []string // name and arguments
}{
	{name: "plain", style: styleQwen, text: "no call < here", content: "no call < here"},
	{name: "one", style: styleQwen,
		text:  "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>",
		calls: []string{"f", `{"a": "}\""}`}},
	{name: "text before, two, text behind", style: styleQwen,
		text: "Let me see.\n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>\n" +
			"<tool_call>{\"name\":\"g\",\"arguments\":{\"x\":[1,{}]}}</tool_call>",
		content: "Let me see.", calls: []string{"f", "{}", "g", `{"x":[1,{}]}`}},
	{name: "other order", style: styleQwen,
		text:  `<tool_call>{"arguments": {"a":1}, "name": "f"}</tool_call>`,
		calls: []string{"f", `{"a":1}`}},
	{name: "no call after all", style: styleQwen, text: `<tool_call>{"a": 1}`,
		content: `<tool_call>{"a": 1}`},
	{name: "cut off", style: styleQwen, text: `<tool_call>{"name":"f","arguments":{"a`,
		calls: []string{"f", `{"a`}},
	{name: "one", style: styleLlama, text: `{"name": "f", "parameters": {"a": 1}}`,
		calls: []string{"f", `{"a": 1}`}},
	{name: "tagged, two", style: styleLlama,
		text: `<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", ` +
			`"parameters": {"b": "ü"}}`,
		calls: []string{"f", "{}", "g", `{"b": "ü"}`}},
	{name: "JSON that is no call", style: styleLlama, text: `{"a": {"name": 1}} yes`,
		content: `{"a": {"name": 1}} yes`},
	{name: "brace later", style: styleLlama, text: `It is {"name": "f", "parameters": {}}`,
		content: `It is {"name": "f", "parameters": {}}`},
	{name: "two", style: styleMistral,
		text: `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}, ` +
			`{"name": "g", "arguments": {}}]`,
		calls: []string{"f", `{"a": 1}`, "g", "{}"}},
	{name: "forced", style: styleMistral, forced: true,
		text: `[{"name": "f", "arguments": {"a": 1}}]`, calls: []string{"f", `{"a": 1}`}},
	{name: "forced", style: styleLlama, forced: true,
		text:  `{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {}}`,
		calls: []string{"f", `{"a": 1}`, "f", "{}"}},
}

func TestCallParser(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 2))
	for _, c := range callCases {
		for range 200 {
			p, w := newCallParser(styles()[c.style], c.forced), whole{}
			take := func(f found) { w.add(piece{text: f.content, calls: f.calls}) }
			for rest := c.text; rest != ""; {
				n := 1 + chance.IntN(len(rest))
				take(p.push(rest[:n]))
				rest = rest[n:]
			}
			take(p.flush())
			var calls []string
			for _, call := range w.calls {
				calls = append(calls, call.Function.Name, call.Function.Arguments)
			}
			if w.text != c.content || !equal(calls, c.calls) {
				t.Fatalf("%s %s: content %q, calls %q", c.style, c.name, w.text, calls)
			}
		}
	}
}

func equal(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestStyleFromTemplate shows templates a call and sees how they write it: a real one of Qwen, and
// two that write as those of Llama 3.1 and Mistral do.
func TestStyleFromTemplate(t *testing.T) {
	tok := sharedTokenizer(t, "qwen3")
	write := func(before, arguments, behind string) string {
		return "{{ tools | tojson }}{% for m in messages %}{% if m.tool_calls %}{% set c = " +
			"m.tool_calls[0].function %}" + before + `{"name": "{{ c.name }}", "` + arguments +
			`": {{ c.arguments | tojson }}}` + behind + "{% else %}{{ m.content }}{% endif %}" +
			"{% endfor %}"
	}
	for source, want := range map[string]string{
		"":                                    styleQwen,
		write("", "parameters", "<|eot_id|>"): styleLlama,
		write("[TOOL_CALLS] [", "arguments", "]"): styleMistral,
		write("call ", "arguments", ""):           "",
		"{{ messages[0].content }}":               "",
	} {
		m := &Model{Tokenizer: tok, ToolParser: styleAuto}
		var err error
		if m.Template, err = tok.ChatTemplate(""); source != "" {
			m.Template, err = tok.ParseChatTemplate("test", source)
		}
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got := m.styleOf(); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
	named := &Model{ToolParser: styleMistral}
	none := &Model{ToolParser: styleNone}
	if named.styleOf() != styleMistral || none.styleOf() != "" {
		t.Errorf("%q, %q", named.styleOf(), none.styleOf())
	}
}

// sharedTokenizer loads a tokenizer of the shared data, or skips the test.
func sharedTokenizer(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	at := os.Getenv("ENGINE_SHARED")
	if at == "" {
		at = filepath.Join("..", "..", "..", "shared")
	}
	folder := filepath.Join(at, "data", "tokenizers", name)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv("ENGINE_REQUIRE_SHARED") == "1" {
			t.Fatalf("shared data not found: %s", folder)
		}
		t.Skipf("shared data not found: %s", folder)
	}
	files := fstest.MapFS{}
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		if data := unpacked(t, filepath.Join(folder, file)); data != nil {
			files[file] = &fstest.MapFile{Data: data}
		}
	}
	tok, err := tokenizer.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// unpacked reads a file that may be there with .gz only; nil when it is not there at all.
func unpacked(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		return data
	}
	file, err := os.Open(path + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	return data
}

// BenchmarkMaskOfLargeVocabulary is a step inside a string, the widest mask, once it is known.
func BenchmarkMaskOfLargeVocabulary(b *testing.B) {
	m := &Model{Tokenizer: sharedTokenizer(b, "llama3_1")}
	raw := `{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":` +
		`{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}}`
	form, fault := m.form([]byte(raw))
	if fault != nil {
		b.Fatal(fault)
	}
	s := form.New()
	for _, id := range m.Tokenizer.Encode(`{"a":"x`, tokenizer.EncodeOptions{}) {
		s.Accept(id)
	}
	logits := make([]float32, m.Tokenizer.VocabSize())
	for b.Loop() {
		s.Mask(logits, 1000, m.Tokenizer.EOS())
	}
}

// BenchmarkFirstMaskOfLargeVocabulary is the first such step of a form.
func BenchmarkFirstMaskOfLargeVocabulary(b *testing.B) {
	m := &Model{Tokenizer: sharedTokenizer(b, "llama3_1")}
	words := m.vocabulary()
	logits := make([]float32, m.Tokenizer.VocabSize())
	for b.Loop() {
		form, fault := compileForm([]byte(`{"type":"json_object"}`), words)
		if fault != nil {
			b.Fatal(fault)
		}
		s := form.New()
		for _, id := range m.Tokenizer.Encode(`{"x`, tokenizer.EncodeOptions{}) {
			s.Accept(id)
		}
		s.Mask(logits, 1000, nil)
	}
}
