package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
)

const hello = `"messages":[{"role":"user","content":"hello"}]`

func TestSchemaBecomesAConstraint(t *testing.T) {
	b := newBench(t, "")
	for seed := range 10 {
		var r openai.ChatResponse
		b.post(chatPath, fmt.Sprintf(`{%s,"seed":%d,"max_tokens":60,"response_format":{
			"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object",
			"properties":{"age":{"type":"integer","minimum":1,"maximum":99}},"required":["age"],
			"additionalProperties":false}}}}`, hello, seed), &r)
		var got struct{ Age int }
		text := r.Choices[0].Message.Content
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Age < 1 || got.Age > 99 {
			t.Errorf("%q: %v", text, err)
		}
	}
	if len(b.model.forms.order) != 1 {
		t.Errorf("%d forms were compiled", len(b.model.forms.order))
	}
	for i := range maxForms + 5 { // The cache stays bounded.
		raw := fmt.Sprintf(`{"type":"json_schema","json_schema":{"schema":{"const":%d}}}`, i)
		if _, fault := b.model.form([]byte(raw)); fault != nil {
			t.Fatal(fault)
		}
	}
	if len(b.model.forms.known) != maxForms {
		t.Errorf("%d forms are kept", len(b.model.forms.known))
	}
}

// TestFormsOfRealVocabularies draws outputs over the vocabularies of real models, of every kind of
// tokenizer, and reads them as clients would.
func TestFormsOfRealVocabularies(t *testing.T) {
	const format = `{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{
		"name":{"type":"string","maxLength":20},"n":{"type":"array","items":{"type":"number",
		"minimum":-5,"maximum":99.5},"minItems":1},"größe":{"enum":["ü","\"","b"]}},
		"required":["name","n","größe"],"additionalProperties":false}}}`
	for _, name := range []string{"llama2", "gpt2", "gemma3", "qwen3"} {
		m := &Model{Tokenizer: sharedTokenizer(t, name)}
		form, fault := m.form([]byte(format))
		if fault != nil {
			t.Fatal(fault)
		}
		for seed := range uint64(2) {
			state := form.New()
			ask := generation.Request{MaxTokens: state.Least() + int(seed)*60, Constraint: state}
			ask.Sampling.Seed = seed
			ids, err := drawn(ask, m.Tokenizer.VocabSize())
			if err != nil {
				t.Fatal(err)
			}
			a := answer{text: m.Tokenizer.NewStream(true)}
			text := ""
			for _, id := range ids {
				text += a.text.Push(id)
			}
			text += a.text.Flush()
			var got struct {
				Name *string
				N    []float64
				Size string `json:"größe"`
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || got.Name == nil ||
				len(got.N) == 0 || got.Size == "" || strings.ContainsRune(text, 0xFFFD) {
				t.Errorf("%s: %q: %v", name, text, err)
			}
		}
	}
}

// weather is a chat with two tools.
const weather = hello + `,"max_tokens":200,"tools":[{"type":"function","function":{
	"name":"get_weather","parameters":{"type":"object","properties":{
	"city":{"enum":["Rome","Oslo"]},"days":{"type":"integer","minimum":1,"maximum":9}},
	"required":["city","days"],"additionalProperties":false}}},
	{"type":"function","function":{"name":"now"}}]`

func TestForcedCalls(t *testing.T) {
	const named = `{"type":"function","function":{"name":"get_weather"}}`
	for _, style := range []string{styleLlama, styleQwen, styleMistral} {
		b := newBench(t, "")
		b.model.ToolParser = style
		for seed := range 8 {
			var r openai.ChatResponse
			b.post(chatPath, fmt.Sprintf(`{%s,"seed":%d,"tool_choice":%s}`, weather, seed, named),
				&r)
			m := r.Choices[0].Message
			var got struct {
				City string
				Days int
			}
			if len(m.ToolCalls) != 1 || m.Content != "" ||
				*r.Choices[0].FinishReason != "tool_calls" {
				t.Fatalf("%s: %+v", style, m)
			}
			call := m.ToolCalls[0]
			if err := json.Unmarshal([]byte(call.Function.Arguments), &got); err != nil ||
				got.City != "Rome" && got.City != "Oslo" || got.Days < 1 || got.Days > 9 ||
				call.ID == "" || call.Type != "function" || call.Function.Name != "get_weather" {
				t.Errorf("%s: %+v: %v", style, call, err)
			}
			b.post(chatPath, fmt.Sprintf(`{%s,"seed":%d,"tool_choice":"required",
				"parallel_tool_calls":false}`, weather, seed), &r)
			if n := len(r.Choices[0].Message.ToolCalls); n != 1 {
				t.Errorf("%s: %d calls", style, n)
			}
		}
	}
}

func TestStreamedCalls(t *testing.T) {
	b := newBench(t, `Wait. <tool_call>{"name": "now", "arguments": {"zone": "UTC"}}</tool_call>`)
	b.model.ToolParser = styleQwen
	list := events[openai.ChatChunk](b, chatPath, `{`+weather+`,"stream":true}`)
	content, arguments, finish := "", "", ""
	var first *openai.CallDelta
	for _, e := range list {
		c := e.Choices[0]
		if c.Delta.Content != nil {
			content += *c.Delta.Content
		}
		if len(c.Delta.ToolCalls) > 1 {
			t.Errorf("%d deltas in one event", len(c.Delta.ToolCalls))
		}
		for _, d := range c.Delta.ToolCalls {
			if first == nil {
				first = &d
			} else if d.ID+d.Type+d.Function.Name != "" {
				t.Errorf("a later delta says %+v", d)
			}
			arguments += d.Function.Arguments
		}
		if c.FinishReason != nil {
			finish = *c.FinishReason
		}
	}
	if content != "Wait." || arguments != `{"zone": "UTC"}` || finish != "tool_calls" ||
		first == nil || first.ID == "" || first.Type != "function" ||
		first.Function.Name != "now" || first.Function.Arguments != "" {
		t.Errorf("content %q, first %+v, arguments %q, finish %q", content, first, arguments,
			finish)
	}
}

func TestOneCallEndsTheAnswer(t *testing.T) {
	b := newBench(t, `<tool_call>{"name": "now", "arguments": {}}</tool_call>`+
		`<tool_call>{"name": "now", "arguments": {}}</tool_call> and so on`)
	for most, want := range map[bool]int{true: 2, false: 1} {
		var r openai.ChatResponse
		b.post(chatPath, fmt.Sprintf(`{%s,"parallel_tool_calls":%v}`, weather, most), &r)
		if n := len(r.Choices[0].Message.ToolCalls); n != want ||
			*r.Choices[0].FinishReason != "tool_calls" {
			t.Errorf("parallel %v: %+v", most, r.Choices[0])
		}
	}
}

func TestToolTurnsReachTheTemplate(t *testing.T) {
	b := newBench(t, "ok")
	tok := b.model.Tokenizer
	template, err := tok.ParseChatTemplate("test", `{% for m in messages %}{{ m.role }}:`+
		`{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments.zone }}`+
		`{% endfor %}{{ m.content }}{{ m.tool_call_id }};{% endfor %}{{ tools | length }}`)
	if err != nil {
		t.Fatal(err)
	}
	b.model.Template = template
	var r openai.ChatResponse
	b.post(chatPath, `{"messages":[{"role":"user","content":"a"},{"role":"assistant",
		"content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"now",
		"arguments":"{\"zone\":\"UTC\"}"}}]},{"role":"tool","tool_call_id":"c1","content":"9"}],
		"tools":[{"type":"function","function":{"name":"now"}}]}`, &r)
	got := tok.Decode(b.source.asks[0].Prompt, false)
	if want := "user:a;assistant:nowUTC;tool:9c1;1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
