package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/kvrelay/engine/host/constrain"
	"github.com/kvrelay/engine/host/openai"
)

// Bounds of the compiled forms that a model keeps, and of their vertices together.
const (
	maxForms    = 16
	maxFormSize = 1 << 18
)

// forms are a model's vocabulary and the forms compiled for it, by the response_format they came
// from.
type forms struct {
	mu    sync.Mutex
	words *constrain.Vocabulary
	known map[string]*constrain.Form
	order []string // oldest first
	size  int      // vertices of all
}

// callsFormat is the response_format of tool calls, between a router and its instances.
type callsFormat struct {
	Type  string       `json:"type"` // openai.FormatCalls
	Style string       `json:"style"`
	Tools []calledTool `json:"tools"`
	Many  bool         `json:"many,omitempty"`
}

type calledTool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// form compiles a response_format, or finds it compiled.
func (m *Model) form(raw json.RawMessage) (*constrain.Form, *openai.Error) {
	f := &m.forms
	f.mu.Lock()
	defer f.mu.Unlock()
	key := string(raw)
	form := f.known[key]
	if form == nil {
		if f.words == nil {
			f.words = m.vocabulary()
			f.known = map[string]*constrain.Form{}
		}
		var fault *openai.Error
		if form, fault = compileForm(raw, f.words); fault != nil {
			return nil, fault
		}
		f.keep(key, form)
	}
	return form, nil
}

// keep remembers a form, and forgets the oldest ones for it.
func (f *forms) keep(key string, form *constrain.Form) {
	for len(f.order) > 0 && (len(f.order) >= maxForms || f.size+form.Size() > maxFormSize) {
		f.size -= f.known[f.order[0]].Size()
		delete(f.known, f.order[0])
		f.order = f.order[1:]
	}
	f.known[key] = form
	f.order = append(f.order, key)
	f.size += form.Size()
}

// vocabulary is what tokens write. Special tokens write nothing.
func (m *Model) vocabulary() *constrain.Vocabulary {
	return constrain.NewVocabulary(m.Tokenizer.VocabSize(), func(id int32) []byte {
		if m.Tokenizer.IsSpecial(id) {
			return nil
		}
		return m.Tokenizer.TokenBytes(id)
	})
}

func compileForm(raw json.RawMessage, words *constrain.Vocabulary) (*constrain.Form,
	*openai.Error,
) {
	var format struct {
		callsFormat
		JSONSchema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &format); err != nil {
		return nil, openai.Errorf(openai.CodeInvalidType, "response_format", "%v", err)
	}
	switch format.Type {
	case openai.FormatObject:
		form, err := constrain.Object(words)
		return form, schemaFault("response_format", err)
	case openai.FormatCalls:
		style, known := styles()[format.Style]
		if !known {
			return nil, openai.Errorf(openai.CodeInvalidValue, "response_format",
				"there is no style %.40q of tool calls", format.Style)
		}
		calls := style.calls
		calls.Many = format.Many
		for _, t := range format.Tools {
			calls.Tools = append(calls.Tools, constrain.Tool{
				Name: t.Name, Parameters: t.Parameters})
		}
		form, err := calls.Form(words)
		path := "response_format"
		if bad, ok := errors.AsType[*constrain.ToolError](err); ok {
			path = fmt.Sprintf("tools[%s].function.parameters", format.Tools[bad.Tool].Name)
		}
		return form, schemaFault(path, err)
	}
	form, err := constrain.Schema(format.JSONSchema.Schema, words)
	return form, schemaFault("response_format.json_schema.schema", err)
}

// schemaFault words an error of the compiler.
func schemaFault(path string, err error) *openai.Error {
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*constrain.SchemaError](err)
	if !ok {
		return openai.Errorf(openai.CodeInvalidJSONSchema, path, "%s: %v", path, err)
	}
	message := bad.Reason
	if bad.Keyword != "" {
		message = bad.Error()
	}
	return openai.Errorf(openai.CodeInvalidJSONSchema, path, "%s: %s", path,
		strings.TrimSpace(message))
}
