package openai

import "encoding/json"

// Tool is a function that the model may call.
type Tool struct {
	Name string
	// Parameters is the JSON Schema of its arguments; nil is any object.
	Parameters json.RawMessage
}

// Choice says whether tools are called.
type Choice string

// The choices. ChoiceNamed names the one tool that is called.
const (
	ChoiceAuto     Choice = "auto"
	ChoiceNone     Choice = "none"
	ChoiceRequired Choice = "required"
	ChoiceNamed    Choice = "function"
)

// Tools are the fields of a chat about tools.
type Tools struct {
	List []Tool
	// Raw is the array as it was sent, for chat templates.
	Raw    json.RawMessage
	Choice Choice
	// Named is the tool of ChoiceNamed.
	Named string
	// One allows a single call.
	One bool
}

// Offered reports whether the model is told of tools.
func (t *Tools) Offered() bool { return len(t.List) > 0 && t.Choice != ChoiceNone }

// Forced reports whether a call must come.
func (t *Tools) Forced() bool { return t.Choice == ChoiceRequired || t.Choice == ChoiceNamed }

// field reads one of the fields. It reports whether the name is one.
func (t *Tools) field(m member) (known bool, err *Error) {
	switch m.name {
	case "tools":
		t.List, t.Raw = nil, json.RawMessage(m.raw)
		return true, m.each(MaxTools, func(v value) *Error {
			tool, err := v.tool()
			t.List = append(t.List, tool)
			return err
		})
	case "tool_choice":
		return true, t.choice(m.value)
	case "parallel_tool_calls":
		var many bool
		err := m.boolean(&many)
		t.One = !many
		return true, err
	}
	return false, nil
}

func (t *Tools) choice(v value) *Error {
	if v.raw[0] == '{' {
		t.Choice = ChoiceNamed
		return v.function(func(m member) *Error {
			if m.name == "name" {
				return m.text(&t.Named, MaxUser)
			}
			return nil
		})
	}
	var word string
	if err := v.text(&word, MaxUser); err != nil {
		return err
	}
	t.Choice = Choice(word)
	switch t.Choice {
	case ChoiceAuto, ChoiceNone, ChoiceRequired:
		return nil
	}
	return v.invalid("is %.40q; it must be auto, none, required or an object that names a "+
		"function", word)
}

// function reads {"type": "function", "function": {...}}.
func (v value) function(inside func(member) *Error) *Error {
	members, err := v.members()
	if err != nil {
		return err
	}
	kind, has := "", false
	for _, m := range members {
		switch m.name {
		case "type":
			if err := m.text(&kind, MaxUser); err != nil {
				return err
			}
			if kind != "function" {
				return m.invalid("is %.40q; only function is supported", kind)
			}
		case "function":
			has = true
			fields, err := m.members()
			if err != nil {
				return err
			}
			for _, f := range fields {
				if err := inside(f); err != nil {
					return err
				}
			}
		}
	}
	switch {
	case kind == "":
		return missing(v.path + ".type")
	case !has:
		return missing(v.path + ".function")
	}
	return nil
}

func (v value) tool() (t Tool, err *Error) {
	err = v.function(func(m member) *Error {
		var text string
		var strict bool
		switch {
		case m.null():
		case m.name == "name":
			return m.text(&t.Name, MaxUser)
		case m.name == "description":
			return m.text(&text, MaxText)
		case m.name == "strict":
			return m.boolean(&strict)
		case m.name == "parameters":
			if m.raw[0] != '{' {
				return m.wrong("an object")
			}
			t.Parameters = json.RawMessage(m.raw)
		}
		return nil
	})
	if err == nil && !toolName(t.Name) {
		err = Errorf(CodeInvalidValue, v.path+".function.name", "%s.function.name is %.70q; it "+
			"must be 1 to %d letters, digits, _ and -", v.path, t.Name, maxToolName)
	}
	return t, err
}

const maxToolName = 64

func toolName(s string) bool {
	for _, c := range []byte(s) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return s != "" && len(s) <= maxToolName
}

// complete checks the fields together.
func (t *Tools) complete(f *Format) *Error {
	if t.Choice == "" {
		t.Choice = ChoiceAuto
	}
	named := t.Choice != ChoiceNamed
	for _, tool := range t.List {
		named = named || tool.Name == t.Named
	}
	switch {
	case len(t.List) == 0 && t.Forced():
		return Errorf(CodeInvalidValue, "tool_choice",
			"tool_choice asks for a call, but there are "+
				"no tools")
	case !named:
		return Errorf(CodeInvalidValue, "tool_choice", "tool_choice names %.70q, which is not "+
			"among the tools", t.Named)
	case f != nil && t.Offered():
		return Errorf(CodeUnsupportedParameter, "response_format", "response_format is not "+
			"supported together with tools; send tool_choice none to have the format")
	}
	return nil
}

// ToolCall is a call that an assistant's message holds. Arguments is JSON, as the model wrote it.
type ToolCall struct{ ID, Name, Arguments string }

func (v value) toolCall() (c ToolCall, err *Error) {
	members, err := v.members()
	if err != nil {
		return c, err
	}
	for _, m := range members {
		if m.name == "id" {
			if err := m.text(&c.ID, MaxUser); err != nil {
				return c, err
			}
		}
	}
	err = v.function(func(m member) *Error {
		switch m.name {
		case "name":
			return m.text(&c.Name, MaxUser)
		case "arguments":
			return m.text(&c.Arguments, MaxText)
		}
		return nil
	})
	if err == nil && c.Name == "" {
		err = missing(v.path + ".function.name")
	}
	return c, err
}

// ReplyCall is a call in an answer.
type ReplyCall struct {
	ID       string        `json:"id"`
	Type     string        `json:"type"` // "function"
	Function ReplyFunction `json:"function"`
}

// ReplyFunction says what is called. Arguments is JSON, as the model wrote it.
type ReplyFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// CallDelta is a piece of a call in a stream: the first has id, type, name and empty arguments, the
// others index and a piece of the arguments.
type CallDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"`
	Function FunctionDelta `json:"function"`
}

// FunctionDelta is the inside of a CallDelta.
type FunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}
