package openai

// Completion is a request to /v1/completions.
type Completion struct {
	Options
	// Prompts has at least one element.
	Prompts []Prompt
	embeds  []Prompt // of prompt_embeds, until they are put before the others
	// Echo puts the prompt before the output.
	Echo bool
}

// Prompt is a text or, when Tokens is not nil, token ids, or, when Items is not nil, several parts
// one after another.
type Prompt struct {
	Text   string
	Tokens []int32
	Items  []Item
}

// Item is a part of a prompt: a text, token ids, or vectors: the base64 form of a safetensors file
// with one tensor [tokens, hidden].
type Item struct {
	Text   string
	Tokens []int32
	// Embeds is "" for the other two. Path names where it stood in the body.
	Embeds, Path string
}

// DecodeCompletion reads the body of a completion request.
func DecodeCompletion(body []byte, l Limits) (*Completion, *Error) {
	c := &Completion{}
	if err := c.read(body, l, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// read takes the fields in the body's order; own handles those that only one call has.
func (c *Completion) read(body []byte, l Limits, own func(member) (bool, *Error)) *Error {
	members, err := parse(body)
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.null() {
			continue
		}
		if err := c.member(m, l, own); err != nil {
			return err
		}
	}
	c.join()
	switch {
	case c.Prompts == nil:
		return missing("prompt")
	case c.Echo && c.mixed():
		return Errorf(CodeUnsupportedParameter, "echo",
			"echo is not supported together with prompt_embeds: vectors have no text")
	case c.Echo && c.Logprobs:
		return Errorf(CodeUnsupportedParameter, "echo", "echo is not supported together with "+
			"logprobs: those of the prompt are not computed")
	}
	return c.together()
}

func (c *Completion) member(m member, l Limits, own func(member) (bool, *Error)) *Error {
	if own != nil {
		if known, err := own(m); known {
			return err
		}
	}
	switch m.name {
	case "prompt":
		return c.prompt(m.value)
	case "prompt_embeds":
		return c.promptEmbeds(m.value)
	case "echo":
		return m.boolean(&c.Echo)
	case "logprobs":
		return c.completionLogprobs(m.value)
	}
	if known, err := c.field(m, l); known {
		return err
	}
	return c.rest(m)
}

func missing(field string) *Error {
	return Errorf(CodeMissingField, field, "%s is missing", field)
}

// prompt reads a string, strings, token ids, or arrays of token ids.
func (c *Completion) prompt(v value) *Error {
	c.Prompts = nil
	const want = "a string, an array of strings, an array of token ids, an array of those or an " +
		"array of data items"
	switch v.raw[0] {
	case '"':
		return c.add(v)
	case '[':
	default:
		return v.wrong(want)
	}
	if v.hasObject() {
		return c.items(v)
	}
	at := space(v.raw, 1)
	switch first := v.raw[at]; {
	case first == ']':
		return v.invalid("is empty; it needs at least one token or text")
	case first == '"' || first == '[':
		return v.each(MaxPrompts, func(element value) *Error {
			if element.raw[0] != first {
				return element.wrong("of the same kind as " + v.path + "[0]")
			}
			return c.add(element)
		})
	case first == '-' || first >= '0' && first <= '9':
		return c.add(v)
	}
	return value{raw: v.raw[at:], at: v.at + at, path: v.path + "[0]"}.wrong(
		"a string, a token id, an array of token ids or a data item")
}

// add appends one prompt: a string or an array of token ids.
func (c *Completion) add(v value) *Error {
	var p Prompt
	if v.raw[0] == '"' {
		if err := v.text(&p.Text, MaxText); err != nil {
			return err
		}
	} else {
		ids, err := v.tokens()
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return v.invalid("is empty; it needs at least one token")
		}
		p.Tokens = ids
	}
	c.Prompts = append(c.Prompts, p)
	return nil
}
