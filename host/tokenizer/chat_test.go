package tokenizer

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// chatCase is a template and a conversation with what Jinja2 makes of them.
type chatCase struct {
	Name, Template  string
	Messages, Tools json.RawMessage
	Prompt          bool
	Vars            map[string]json.RawMessage
	Want            struct{ Text, Error string }
}

// tiny is a tokenizer for tests that are about templates.
func tiny(t testing.TB) *Tokenizer {
	t.Helper()
	return load(t, fstest.MapFS{mainFile: {Data: []byte(tinyJSON)}})
}

func load(t testing.TB, files fstest.MapFS) *Tokenizer {
	t.Helper()
	tok, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestChatGolden(t *testing.T) {
	var cases []chatCase
	readJSON(t, filepath.Join("testdata", "chat_golden.json"), &cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { checkChat(t, tiny(t), c) })
	}
}

func checkChat(t *testing.T, tok *Tokenizer, c chatCase) {
	t.Helper()
	template, err := tok.ParseChatTemplate(c.Name, c.Template)
	if err != nil {
		t.Fatal(err)
	}
	if c.Messages == nil {
		c.Messages = json.RawMessage("[]")
	}
	vars := map[string]any{}
	for name, v := range c.Vars {
		vars[name] = v
	}
	got, err := template.Render(c.Messages, RenderOptions{
		AddGenerationPrompt: c.Prompt, Tools: c.Tools, Vars: vars, KeepParts: true,
	})
	if (err != nil) != (c.Want.Error != "") {
		t.Fatalf("error is %v, want %q", err, c.Want.Error)
	}
	if got != c.Want.Text {
		t.Errorf("\n got %q\nwant %q", got, c.Want.Text)
	}
}

// TestChatOfRealModel renders a chat model's own template and encodes the text.
func TestChatOfRealModel(t *testing.T) {
	var golden struct {
		Template string
		BOS      string `json:"bos_token"`
		EOS      string `json:"eos_token"`
		Cases    []struct {
			ID, Text, Error     string
			Messages            json.RawMessage
			AddGenerationPrompt bool `json:"add_generation_prompt"`
		}
	}
	readJSON(t, filepath.Join(sharedDir(t), "real", "chat_smollm2.json"), &golden)
	for _, c := range golden.Cases {
		one := chatCase{Name: c.ID, Template: golden.Template, Messages: c.Messages,
			Prompt: c.AddGenerationPrompt}
		one.Want.Text, one.Want.Error = c.Text, c.Error
		t.Run(c.ID, func(t *testing.T) { checkChat(t, tiny(t), one) })
	}
}

func TestChatTemplateChoice(t *testing.T) {
	config := `{"chat_template": [
		{"name": "default", "template": "plain {{ messages[0].content }}"},
		{"name": "tool_use", "template": "tools {{ tools | length }}"}]}`
	tok := load(t, fstest.MapFS{
		mainFile: {Data: []byte(tinyJSON)}, configName: {Data: []byte(config)},
	})
	template, err := tok.ChatTemplate("")
	if err != nil {
		t.Fatal(err)
	}
	hi := MessagesJSON([]Message{{"user", "hi"}})
	render(t, template, hi, RenderOptions{}, "plain hi")
	render(t, template, hi, RenderOptions{Tools: json.RawMessage(`[{}]`)}, "tools 1")
	if !template.SupportsTools() {
		t.Error("a folder with a tool_use template supports tools")
	}
	if _, err := tok.ChatTemplate("rag"); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("unknown name: %v", err)
	}
	tok = load(t, fstest.MapFS{
		mainFile: {Data: []byte(tinyJSON)}, configName: {Data: []byte(config)},
		"chat_template.jinja": {Data: []byte("file")},
	})
	if template, err = tok.ChatTemplate(""); err != nil {
		t.Fatal(err)
	}
	render(t, template, hi, RenderOptions{}, "file")
}

func render(t *testing.T, c *ChatTemplate, messages json.RawMessage, o RenderOptions, want string) {
	t.Helper()
	got, err := c.Render(messages, o)
	if err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestChatErrors(t *testing.T) {
	tok := tiny(t)
	if _, err := tok.ChatTemplate(""); !errors.Is(err, ErrNoTemplate) {
		t.Errorf("no template: %v", err)
	}
	var broken *TemplateError
	for _, source := range []string{
		"{{ 'open }}", "{% if x %}", "{% endfor %}", "{{ (1] }}", "{{ a ! b }}", "{# open",
		"{{ x | }}",
		"{% include 'x' %}", "{% raw %}", "{% set %}", "{{", "{%", strings.Repeat("(", 200),
		"{{ " + strings.Repeat("(", 200) + strings.Repeat(")", 200) + " }}",
		strings.Repeat("{% if x %}", 200) + strings.Repeat("{% endif %}", 200),
		strings.Repeat("x", maxTemplate+1),
	} {
		template, err := tok.ParseChatTemplate("t", source)
		if source[0] == '(' || source[0] == 'x' && len(source) <= maxTemplate {
			if err != nil {
				t.Errorf("plain text refused: %v", err)
			}
			continue
		}
		if !errors.As(err, &broken) || broken.Name != "t" || broken.Raised {
			t.Errorf("%.40q: %v, %v", source, template, err)
		}
	}
}

// TestRenderErrors gives templates and conversations that fail while rendering.
func TestRenderErrors(t *testing.T) {
	hi := `[{"role":"user","content":"hi"}]`
	deep := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	for _, c := range []struct{ template, messages, tools, want string }{
		{"{{ raise_exception('no ' + messages[0].role) }}", hi, "", "chat template t: no user"},
		{"x", hi, "[{}]", "does not support tools"},
		{"x", `{}`, "", "messages: should be an array"},
		{"x", `[{"role":`, "", "messages: [0].role: byte 9: the file ends"},
		{"x", deep, "", "more than 64 values in one another"},
		{"{{ tools }}", hi, `{}`, "tools: should be an array"},
		{"x", `[{"content":[{"type":"image_url"}]}]`, "", "messages[0].content[0]: the model"},
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", hi, "", "more than 200 macro calls"},
		{"{{ range(10 ** 9 | int) }}", hi, "", "range"},
		{"{{ range(1000000) }}", hi, "", "range of more than 100000 numbers"},
		{"{% for i in range(2000) %}{% for j in range(2000) %}{% endfor %}{% endfor %}", hi, "",
			"more than 1000000 turns"},
		{"{{ 'a' * -1 }}", hi, "", "rendering failed"},
		{"{{ x.strip() }}", hi, "", "no such method"},
		{"{{ x | nonsense }}", hi, "", "nonsense"},
	} {
		template, err := tiny(t).ParseChatTemplate("t", c.template)
		if err != nil {
			t.Errorf("%s: %v", c.template, err)
			continue
		}
		o := RenderOptions{Tools: json.RawMessage(c.tools)}
		got, err := template.Render(json.RawMessage(c.messages), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.60q, error %v, want %q", c.template, got, err, c.want)
		}
		var failed *TemplateError
		if raises := strings.Contains(c.template, "raise_exception"); raises &&
			(!errors.As(err, &failed) || !failed.Raised || failed.Message != "no user") {
			t.Errorf("%s: %#v is not what the template raised", c.template, err)
		}
	}
}

func TestContentParts(t *testing.T) {
	parts := json.RawMessage(`[{"role":"user","content":[
		{"type":"text","text":"a"},{"type":"text","text":"b"}]}]`)
	for _, c := range []struct{ template, want string }{
		{"{{ messages[0].content }}", "a\nb"},
		{"{% for p in messages[0]['content'] %}<{{ p.text }}>{% endfor %}", "<a><b>"},
	} {
		template, err := tiny(t).ParseChatTemplate("t", c.template)
		if err != nil {
			t.Fatal(err)
		}
		render(t, template, parts, RenderOptions{}, c.want)
	}
}

func TestStrftime(t *testing.T) {
	now := time.Date(2025, 1, 5, 9, 4, 3, 0, time.UTC)
	for format, want := range map[string]string{
		"%d %b %Y": "05 Jan 2025", "%B %-d, %Y": "January 5, 2025",
		"%Y-%m-%d %H:%M:%S": "2025-01-05 09:04:03",
		"%A %a %I %p %y %j": "Sunday Sun 09 AM 25 005", "100%% %Q %": "100% %Q %",
		"%-H": "9", "%e": " 5",
		"Jan 2006": "Jan 2006",
	} {
		if got := strftime(now, format); got != want {
			t.Errorf("%q: got %q, want %q", format, got, want)
		}
	}
	template, err := tiny(t).ParseChatTemplate("t", "{{ strftime_now('%Y') }}")
	if err != nil {
		t.Fatal(err)
	}
	render(t, template, json.RawMessage("[]"), RenderOptions{Now: now}, "2025")
}

func FuzzChatTemplate(f *testing.F) {
	var cases []chatCase
	readJSON(f, filepath.Join("testdata", "chat_golden.json"), &cases)
	for _, c := range cases {
		f.Add(c.Template, string(c.Messages))
	}
	tok := tiny(f)
	f.Fuzz(func(t *testing.T, source, messages string) {
		template, err := tok.ParseChatTemplate("t", source)
		if err != nil {
			return
		}
		_, _ = template.Render(json.RawMessage(messages), RenderOptions{})
	})
}
