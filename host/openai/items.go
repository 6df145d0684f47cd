package openai

import "strings"

// promptEmbeds reads prompt_embeds: the base64 form of one file, or an array of such. Each is a
// prompt of its own.
func (c *Completion) promptEmbeds(v value) *Error {
	c.embeds = nil
	add := func(v value) *Error {
		item, err := v.embeds()
		c.embeds = append(c.embeds, Prompt{Items: []Item{item}})
		return err
	}
	switch v.raw[0] {
	case '"':
		return add(v)
	case '[':
		if err := v.each(MaxPrompts, add); err != nil {
			return err
		}
		if len(c.embeds) == 0 {
			return v.invalid("is empty; it needs at least one tensor")
		}
		return nil
	}
	return v.wrong("a string or an array of strings, each the base64 form of a safetensors file")
}

// embeds reads the base64 form of a file. Whoever knows the model decodes it.
func (v value) embeds() (item Item, err *Error) {
	item.Path = v.path
	if err := v.text(&item.Embeds, MaxText); err != nil {
		return item, err
	}
	if item.Embeds == "" {
		return item, v.invalid("is empty; it must be the base64 form of a safetensors file")
	}
	item.Embeds = strings.Clone(item.Embeds) // The body can go.
	return item, nil
}

// hasObject reports whether an array holds an object, which only data items are.
func (v value) hasObject() bool {
	for i := space(v.raw, 1); v.raw[i] != ']'; {
		if v.raw[i] == '{' {
			return true
		}
		if c := v.raw[i]; c == '-' || c >= '0' && c <= '9' {
			return strings.IndexByte(v.raw, '{') >= 0 // Token ids, or a mistake to be found.
		}
		i = comma(v.raw, end(v.raw, i))
	}
	return false
}

// items reads an array of data items, which is one prompt: strings, arrays of token ids, objects
// with prompt_embeds, in the order in which the model is to read them.
func (c *Completion) items(v value) *Error {
	var p Prompt
	err := v.each(MaxItems, func(element value) *Error {
		item, err := element.item()
		p.Items = append(p.Items, item)
		return err
	})
	c.Prompts = []Prompt{p}
	return err
}

// item reads one data item.
func (v value) item() (item Item, err *Error) {
	const want = `a data item: a string, an array of token ids or {"prompt_embeds": …}`
	switch v.raw[0] {
	case '"':
		return item, v.text(&item.Text, MaxText)
	case '[':
		if item.Tokens, err = v.tokens(); err == nil && len(item.Tokens) == 0 {
			err = v.invalid("is empty; it needs at least one token")
		}
		return item, err
	case '{':
	default:
		return item, v.wrong(want)
	}
	members, err := v.members()
	if err != nil {
		return item, err
	}
	found := false
	for _, m := range members {
		switch {
		case m.name == "prompt_embeds" && !m.null():
			found = true
			if item, err = m.embeds(); err != nil {
				return item, err
			}
		case m.name == "type" && (m.raw == `"prompt_embeds"` || m.null()):
		default:
			return item, m.invalid(`is no field of a data item, which is {"prompt_embeds": …}`)
		}
	}
	if !found {
		return item, missing(v.path + ".prompt_embeds")
	}
	return item, nil
}

// join puts the prompts of prompt_embeds before those of prompt. An empty text beside them is none:
// clients that cannot leave prompt out send it.
func (c *Completion) join() {
	if len(c.embeds) == 0 {
		return
	}
	rest := c.Prompts
	if len(rest) == 1 && rest[0].Tokens == nil && rest[0].Items == nil && rest[0].Text == "" {
		rest = nil
	}
	c.Prompts, c.embeds = append(c.embeds, rest...), nil
}

// mixed reports whether some prompt has several parts.
func (c *Completion) mixed() bool {
	for _, p := range c.Prompts {
		if p.Items != nil {
			return true
		}
	}
	return false
}
