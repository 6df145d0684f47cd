package openai

import "strings"

// Chat is a request to /v1/chat/completions.
type Chat struct {
	Options
	// Messages has at least one element.
	Messages []Message
	Tools    Tools
}

// Message is one turn of a chat.
type Message struct {
	// Role is system, user, assistant or tool. developer, the newer name, is read as system.
	Role string
	// Content is the text; text parts are joined with line breaks.
	Content string
	// Name is the speaker's name; "" when none was given.
	Name string
	// ToolCalls are those an assistant made; ToolCallID says which one a tool's message answers.
	ToolCalls  []ToolCall
	ToolCallID string
}

// DecodeChat reads the body of a chat request.
func DecodeChat(body []byte, l Limits) (*Chat, *Error) {
	members, err := parse(body)
	if err != nil {
		return nil, err
	}
	c := &Chat{}
	for _, m := range members {
		if m.null() {
			continue
		}
		if err := c.member(m, l); err != nil {
			return nil, err
		}
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	return c, nil
}

// complete checks the request as a whole.
func (c *Chat) complete() *Error {
	switch {
	case c.Messages == nil:
		return missing("messages")
	case c.TopLogprobs > 0 && !c.Logprobs:
		return Errorf(CodeInvalidValue, "top_logprobs", "top_logprobs needs logprobs: true")
	}
	if err := c.Tools.complete(c.Format); err != nil {
		return err
	}
	return c.together()
}

func (c *Chat) member(m member, l Limits) *Error {
	if m.name == "messages" {
		return c.messages(m.value)
	}
	if known, err := c.chatLogprobs(m); known {
		return err
	}
	if known, err := c.Tools.field(m); known {
		return err
	}
	if known, err := c.field(m, l); known {
		return err
	}
	return c.rest(m)
}

func (c *Chat) messages(v value) *Error {
	c.Messages = nil
	err := v.each(MaxMessages, func(v value) *Error {
		m, err := c.message(v)
		c.Messages = append(c.Messages, m)
		return err
	})
	if err == nil && len(c.Messages) == 0 {
		return v.invalid("is empty; it needs at least one message")
	}
	return err
}

func (c *Chat) message(v value) (m Message, err *Error) {
	members, err := v.members()
	if err != nil {
		return m, err
	}
	hasContent := false
	for _, f := range members {
		switch {
		case f.null():
		case f.name == "role":
			err = f.role(&m.Role)
		case f.name == "content":
			hasContent = true
			err = f.content(&m.Content)
		case f.name == "name":
			err = f.text(&m.Name, MaxUser)
		case f.name == "tool_calls":
			err = f.each(MaxCalls, func(v value) *Error {
				call, err := v.toolCall()
				m.ToolCalls = append(m.ToolCalls, call)
				return err
			})
		case f.name == "tool_call_id":
			err = f.text(&m.ToolCallID, MaxUser)
		case f.name == "function_call", f.name == "audio":
			err = unbuilt(f)
		case f.name == "refusal", f.name == "annotations", f.name == "reasoning_content":
			// They come back from answers of ours and others; no template shows them.
		default:
			c.Unknown++
		}
		if err != nil {
			return m, err
		}
	}
	switch {
	case m.Role == "":
		return m, missing(v.path + ".role")
	case !hasContent && len(m.ToolCalls) == 0:
		return m, missing(v.path + ".content")
	case m.Role == "tool" && m.ToolCallID == "":
		return m, missing(v.path + ".tool_call_id")
	case m.Role != "assistant" && len(m.ToolCalls) > 0:
		return m, v.invalid("has tool_calls, which only an assistant makes")
	}
	return m, nil
}

func (v value) role(to *string) *Error {
	if err := v.text(to, MaxUser); err != nil {
		return err
	}
	switch *to {
	case "system", "user", "assistant", "tool":
		return nil
	case "developer":
		*to = "system"
		return nil
	case "function":
		return Errorf(CodeUnsupportedParameter, v.path,
			"%s: the role %q is not supported (byte %d)", v.path, *to, v.at)
	}
	return v.invalid("is %.40q; it must be system, developer, user, assistant or tool", *to)
}

// content reads a string or an array of parts, of which only text is built.
func (v value) content(to *string) *Error {
	if v.raw[0] == '"' {
		return v.text(to, MaxText)
	}
	if v.raw[0] != '[' {
		return v.wrong("a string or an array of parts")
	}
	var texts []string
	err := v.each(MaxParts, func(part value) *Error {
		text, err := part.part()
		texts = append(texts, text)
		return err
	})
	*to = strings.Join(texts, "\n")
	return err
}

func (v value) part() (text string, err *Error) {
	members, err := v.members()
	if err != nil {
		return "", err
	}
	kind, hasText := "", false
	for _, m := range members {
		switch {
		case m.null():
		case m.name == "type":
			if err := m.text(&kind, MaxUser); err != nil {
				return "", err
			}
			if kind != "text" {
				return "", Errorf(CodeUnsupportedContent, m.path,
					"%s is %.40q; only text is supported (byte %d)", m.path, kind, m.at)
			}
		case m.name == "text":
			hasText = true
			if err := m.text(&text, MaxText); err != nil {
				return "", err
			}
		}
	}
	switch {
	case kind == "":
		return "", missing(v.path + ".type")
	case !hasText:
		return "", missing(v.path + ".text")
	}
	return text, nil
}
