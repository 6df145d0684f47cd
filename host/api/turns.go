package api

import (
	"encoding/json"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// turn is a message as chat templates see it.
type turn struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Name       string     `json:"name,omitempty"`
	ToolCalls  []turnCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type turnCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function turnFunction `json:"function"`
}

// turnFunction has the arguments as the object that they are, which is what templates expect.
type turnFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func turns(messages []openai.Message) []turn {
	all := make([]turn, len(messages))
	for i, m := range messages {
		all[i] = turn{Role: m.Role, Content: m.Content, Name: m.Name, ToolCallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			arguments := json.RawMessage(c.Arguments)
			if !json.Valid(arguments) {
				arguments, _ = json.Marshal(c.Arguments) // Strings always have JSON.
			}
			all[i].ToolCalls = append(all[i].ToolCalls, turnCall{ID: c.ID, Type: "function",
				Function: turnFunction{Name: c.Name, Arguments: arguments}})
		}
	}
	return all
}

// conversation renders a chat with the model's template and encodes it.
func (m *Model) conversation(c *openai.Chat) ([]int32, *openai.Error) {
	if m.Template == nil {
		return nil, openai.Errorf(openai.CodeInvalidValue, "messages",
			"this model cannot chat: %v; use /v1/completions", m.TemplateError)
	}
	options := tokenizer.RenderOptions{AddGenerationPrompt: true}
	list := turns(c.Messages)
	if c.Tools.Offered() {
		switch {
		case m.Template.SupportsTools():
			options.Tools = c.Tools.Raw
		case m.styleOf() != "": // The operator says that the model can call.
			list = append([]turn{{Role: "system", Content: "Tools: " + string(c.Tools.Raw)}},
				list...)
		default:
			return nil, openai.Errorf(openai.CodeUnsupportedParameter, "tools",
				"the chat template of this model shows no tools; set model.tool_parser to have "+
					"them shown in a system message")
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, openai.Errorf(openai.CodeInternal, "", "render the conversation: %v", err)
	}
	text, err := m.Template.Render(data, options)
	if err != nil {
		return nil, openai.Errorf(openai.CodeInvalidValue, "messages", "%v", err)
	}
	ids := m.Tokenizer.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	if len(ids) == 0 {
		return nil, openai.Errorf(openai.CodeInvalidValue, "messages", "the conversation is empty")
	}
	return ids, nil
}
