package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Limits on one rendering. Jinja2's sandbox has the second and Python the third.
const (
	maxTurns = 1_000_000 // turns of all loops together
	maxRange = 100_000
	maxCalls = 200 // macros inside macros
)

// raised is what a template says when it refuses a conversation.
type raised string

func (r raised) Error() string { return string(r) }

// Render returns the prompt of a conversation, as Jinja2 in the setting of Hugging Face
// transformers renders it. messages is a JSON array of message objects as an OpenAI client
// sends them; the order of keys is kept. The text already holds its special tokens: encode
// it with ParseSpecial and without AddSpecial. The error is ErrNoTools, a *TemplateError, or
// says what is wrong with the JSON.
//
// Where Python refuses to add text and something else (a content that is null), this adds
// the text alone.
func (c *ChatTemplate) Render(messages json.RawMessage, o RenderOptions) (string, error) {
	vars, err := c.variables(messages, o)
	if err != nil {
		return "", err
	}
	if tools := vars["tools"]; tools.IsList() && tools.AsList().Len() > 0 {
		switch {
		case c.withTools != nil:
			return c.withTools.Render(messages, o)
		case !c.takesTools:
			return "", ErrNoTools
		}
	}
	if !o.KeepParts && !c.takesParts {
		if err := joinParts(vars["messages"]); err != nil {
			return "", err
		}
	}
	text, err := c.render(vars)
	if err != nil {
		var said raised
		failure := &TemplateError{Name: c.name, Message: err.Error()}
		if errors.As(err, &said) {
			failure.Raised, failure.Message = true, string(said)
		}
		return "", failure
	}
	return text, nil
}

// render runs the library, which panics on a few things that templates can do.
func (c *ChatTemplate) render(vars map[string]jinja.Value) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("rendering failed: %v", p)
		}
	}()
	return c.compiled.RenderValues(vars)
}

// variables are what the template can name.
func (c *ChatTemplate) variables(messages json.RawMessage, o RenderOptions) (
	vars map[string]jinja.Value, err error) {
	vars = map[string]jinja.Value{
		"add_generation_prompt": jinja.NewBool(o.AddGenerationPrompt),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
	}
	for name, token := range c.special {
		vars[name] = jinja.NewString(token)
	}
	if vars["messages"], err = jsonValue(messages); err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	if !vars["messages"].IsList() {
		return nil, errors.New("messages: should be an array")
	}
	if len(o.Tools) > 0 {
		if vars["tools"], err = jsonValue(o.Tools); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if !vars["tools"].IsList() && !vars["tools"].IsNone() {
			return nil, errors.New("tools: should be an array")
		}
	}
	for name, v := range o.Vars {
		raw, ok := v.(json.RawMessage)
		if !ok {
			if raw, err = json.Marshal(v); err != nil {
				return nil, fmt.Errorf("template variable %s: %w", name, err)
			}
		}
		if vars[name], err = jsonValue(raw); err != nil {
			return nil, fmt.Errorf("template variable %s: %w", name, err)
		}
	}
	for name, f := range c.functions {
		vars[name] = f
	}
	addGuards(vars, o.Now)
	return vars, nil
}

// joinParts makes text of contents that are lists of text parts.
func joinParts(messages jinja.Value) error {
	for i, m := range messages.AsList().Items {
		content := attribute(m, "content")
		if !content.IsList() {
			continue
		}
		parts := make([]string, content.AsList().Len())
		for j, part := range content.AsList().Items {
			text := attribute(part, "text")
			if kind := attribute(part, "type"); pythonText(kind) != "text" || !text.IsString() {
				return fmt.Errorf("messages[%d].content[%d]: the model takes text, not %s",
					i, j, pythonRepr(kind))
			}
			parts[j] = text.AsString()
		}
		m.AsDict().Set("content", jinja.NewString(strings.Join(parts, "\n")))
	}
	return nil
}

// addGuards adds what every template can call: how text is printed, how a template refuses,
// what time it is, and the counters that end what would not end.
func addGuards(vars map[string]jinja.Value, now time.Time) {
	turns, calls := 0, 0
	nothing := jinja.NewString("")
	for name, f := range map[string]function{
		"py_str": func(c call) (jinja.Value, error) { return jinja.NewString(c.text()), nil },
		"py_tick": func(call) (jinja.Value, error) {
			if turns++; turns > maxTurns {
				return nothing, fmt.Errorf("loops took more than %d turns", maxTurns)
			}
			return nothing, nil
		},
		"py_enter": func(call) (jinja.Value, error) {
			if calls++; calls > maxCalls {
				return nothing, fmt.Errorf("more than %d macro calls in one another", maxCalls)
			}
			return nothing, nil
		},
		"py_keep": func(c call) (jinja.Value, error) {
			c.args[0].AsList().Append(jinja.NewList(c.args[1:]))
			return nothing, nil
		},
		"py_leave": func(call) (jinja.Value, error) { calls--; return nothing, nil },
		"raise_exception": func(c call) (jinja.Value, error) {
			return nothing, raised(pythonText(c.arg(0, "message")))
		},
		"strftime_now": func(c call) (jinja.Value, error) {
			if now.IsZero() {
				now = time.Now()
			}
			return jinja.NewString(strftime(now, pythonText(c.arg(0, "format")))), nil
		},
		"range": rangeList,
	} {
		vars[name] = f.value(name)
	}
}

// rangeList is range(stop) or range(start, stop, step).
func rangeList(c call) (jinja.Value, error) {
	bounds := []int64{0, 0, 1}
	for i, v := range c.args {
		if !v.IsInt() || i == len(bounds) {
			return jinja.Undefined(), errors.New("range takes up to three whole numbers")
		}
		bounds[i] = v.AsInt()
	}
	if len(c.args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return jinja.Undefined(), errors.New("range: the step is zero")
	}
	var items []jinja.Value
	for n := start; step > 0 && n < stop || step < 0 && n > stop; n += step {
		if len(items) == maxRange {
			return jinja.Undefined(), fmt.Errorf("range of more than %d numbers", maxRange)
		}
		items = append(items, jinja.NewInt(n))
	}
	return jinja.NewList(items), nil
}

// strftime formats a time in Python's way; directives that it does not know stay.
func strftime(now time.Time, format string) string {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
		'p': "PM", 'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'j': "002",
		'Z': "MST", 'z': "-0700", 'e': "_2", 'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		unpadded := format[i] == '-' && i+1 < len(format)
		if unpadded {
			i++
		}
		layout, ok := layouts[format[i]]
		switch text := now.Format(layout); {
		case format[i] == '%':
			out.WriteByte('%')
		case !ok:
			out.WriteString("%" + string(format[i]))
		case unpadded:
			out.WriteString(strings.TrimLeft(text, "0 "))
		default:
			out.WriteString(text)
		}
	}
	return out.String()
}
