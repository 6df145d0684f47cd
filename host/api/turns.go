package api

import (
	"encoding/json"
	"errors"

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
	text, fault := m.rendered(c, true)
	if fault != nil {
		return nil, fault
	}
	ids, fault := m.encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	if fault != nil {
		fault.Param = "messages"
		return nil, fault
	}
	if len(ids) == 0 {
		return nil, openai.Errorf(openai.CodeInvalidValue, "messages", "the conversation is empty")
	}
	return ids, nil
}

// rendered is a chat as the model's template writes it; with answer it ends where the assistant's
// answer begins.
func (m *Model) rendered(c *openai.Chat, answer bool) (string, *openai.Error) {
	if m.Template == nil {
		return "", openai.Errorf(openai.CodeInvalidValue, "messages",
			"this model cannot chat: %v; use /v1/completions", m.TemplateError)
	}
	options := tokenizer.RenderOptions{AddGenerationPrompt: answer}
	list := turns(c.Messages)
	if c.Tools.Offered() {
		switch {
		case m.Template.SupportsTools():
			options.Tools = c.Tools.Raw
		case m.styleOf() != "": // The operator says that the model can call.
			list = append([]turn{{Role: "system", Content: "Tools: " + string(c.Tools.Raw)}},
				list...)
		default:
			return "", openai.Errorf(openai.CodeUnsupportedParameter, "tools",
				"the chat template of this model shows no tools; set model.tool_parser to have "+
					"them shown in a system message")
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return "", openai.Errorf(openai.CodeInternal, "", "render the conversation: %v", err)
	}
	text, err := m.Template.Render(data, options)
	if err != nil {
		return "", refused(err)
	}
	return text, nil
}

// refused words why a conversation could not be rendered. A template may refuse one by itself, as
// many do when user and assistant do not take turns: it says why best.
func refused(err error) *openai.Error {
	failure, ok := errors.AsType[*tokenizer.TemplateError](err)
	switch {
	case errors.Is(err, tokenizer.ErrNoTools):
		return openai.Errorf(openai.CodeUnsupportedParameter, "tools", "%v", err)
	case ok && failure.Raised:
		return openai.Errorf(openai.CodeInvalidValue, "messages",
			"the model's chat template refuses this conversation: %s", failure.Message)
	}
	return openai.Errorf(openai.CodeInvalidValue, "messages",
		"the model's chat template cannot show this conversation: %v", err)
}
