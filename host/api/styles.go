package api

import (
	"encoding/json"
	"strings"

	"github.com/kvrelay/engine/host/constrain"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// Names of the ways in which models write tool calls.
const (
	styleAuto    = "auto"
	styleNone    = "none"
	styleLlama   = "llama3"
	styleQwen    = "qwen"
	styleMistral = "mistral"
)

// style is one way to write tool calls.
type style struct {
	// calls is what a forced output looks like.
	calls constrain.Calls
	// open is the text, or the special token, that begins calls in a free output; with "" a brace
	// at the very beginning does. close is the text after a call.
	open, close string
	// list says that calls stand in an array.
	list bool
}

// styles are those that are known: of Llama 3.1, of Qwen 2.5 and 3 (as Hermes before), and of
// Mistral's first models with tools.
func styles() map[string]style {
	const name, arguments = `{"name": "`, `", "arguments": `
	return map[string]style{
		styleLlama: {calls: constrain.Calls{Name: name, Arguments: `", "parameters": `, Tail: "}",
			Between: "; "}},
		styleQwen: {open: "<tool_call>", close: "</tool_call>", calls: constrain.Calls{
			Open: "<tool_call>\n", Close: "\n</tool_call>",
			Between: "\n</tool_call>\n<tool_call>\n",
			Name:    name, Arguments: arguments, Tail: "}"}},
		styleMistral: {open: "[TOOL_CALLS]", list: true, calls: constrain.Calls{Open: "[",
			Close: "]", Between: ", ", Name: name, Arguments: arguments, Tail: "}"}},
	}
}

// styleOf is the style that the model's tool calls have: the operator's, or what its chat template
// writes when it is shown a call. "" is none.
func (m *Model) styleOf() string {
	if m.ToolParser != styleAuto && m.ToolParser != "" {
		return strings.TrimSuffix(m.ToolParser, styleNone)
	}
	m.styleOnce.Do(func() {
		if m.Template != nil && m.Template.SupportsTools() {
			m.style = probe(m.Template)
		}
	})
	return m.style
}

// probe renders a conversation with a call and looks at how it is written.
func probe(template *tokenizer.ChatTemplate) string {
	const (
		tools = `[{"type":"function","function":{"name":"probe","description":"d","parameters":` +
			`{"type":"object","properties":{}}}}]`
		turns = `[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[` +
			`{"id":"abcdefghi","type":"function","function":{"name":"probe","arguments":{}}}]},` +
			`{"role":"tool","name":"probe","tool_call_id":"abcdefghi","content":"b"}]`
	)
	text, err := template.Render([]byte(turns), tokenizer.RenderOptions{Tools: []byte(tools)})
	switch {
	case err != nil:
		return ""
	case strings.Contains(text, "<tool_call>"):
		return styleQwen
	case strings.Contains(text, "[TOOL_CALLS]"):
		return styleMistral
	case strings.Contains(text, `{"name": "probe", "parameters"`):
		return styleLlama
	}
	return ""
}

// forcedCalls is the format of an output that must call tools; nil where it need not.
func (m *Model) forcedCalls(t *openai.Tools) (*openai.Format, *openai.Error) {
	if !t.Forced() {
		return nil, nil
	}
	style := m.styleOf()
	if style == "" {
		return nil, openai.Errorf(openai.CodeUnsupportedParameter, "tool_choice",
			"tool_choice %s: how this model writes calls is not known; set model.tool_parser",
			t.Choice)
	}
	format := callsFormat{Type: openai.FormatCalls, Style: style,
		Many: !t.One && t.Choice == openai.ChoiceRequired}
	for _, tool := range t.List {
		if t.Choice == openai.ChoiceRequired || tool.Name == t.Named {
			format.Tools = append(format.Tools, calledTool(tool))
		}
	}
	raw, err := json.Marshal(format)
	if err != nil {
		return nil, openai.Errorf(openai.CodeInternal, "", "write the form of the calls: %v", err)
	}
	return &openai.Format{Kind: openai.FormatCalls, Raw: raw}, nil
}
