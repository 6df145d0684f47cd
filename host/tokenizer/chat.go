package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// Why a chat could not be rendered. All are the client's or the model folder's doing.
var (
	// ErrNoTemplate: the model has no chat template, or none of that name.
	ErrNoTemplate = errors.New("no chat template")
	// ErrNoTools: tools were given, and the template never looks at them.
	ErrNoTools = errors.New("the chat template does not support tools")
)

// TemplateError is a template that does not parse, or that failed while rendering.
type TemplateError struct {
	// Name is the template's name ("default", "tool_use") or its file.
	Name string
	// Raised is set when the template itself refused the conversation by calling
	// raise_exception; Message is then what it said.
	Raised  bool
	Message string
}

func (e *TemplateError) Error() string { return "chat template " + e.Name + ": " + e.Message }

// Message is a plain chat message, for callers that have no JSON of their own.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// RenderOptions is what a conversation brings besides its messages.
type RenderOptions struct {
	// AddGenerationPrompt ends the text where the assistant's answer begins.
	AddGenerationPrompt bool
	// Tools is the JSON array of the request's tools, or nil. The order of its keys is kept.
	Tools json.RawMessage
	// Vars are further template variables, such as "enable_thinking"; they win over the
	// tokenizer's own bos_token, eos_token and so on. Values are what encoding/json
	// decodes into any, or json.RawMessage (which keeps the order of keys).
	Vars map[string]any
	// KeepParts leaves message content that is a list of parts as it is. Otherwise the texts
	// of such a list are joined by newlines, unless the template takes the list apart itself.
	KeepParts bool
	// Now is what strftime_now tells; the zero time means the current time.
	Now time.Time
}

// ChatTemplate is a compiled chat template. It may be used by many goroutines at once.
type ChatTemplate struct {
	name      string
	compiled  *jinja.Template
	functions map[string]jinja.Value
	special   map[string]string
	// takesTools and takesParts say what the template looks at: tools, lists of content parts.
	takesTools, takesParts bool
	// withTools is the folder's template for requests with tools, if it has one.
	withTools *ChatTemplate
}

// ChatTemplate returns the model's template of that name; "" is the default one, which
// gives way to one named "tool_use" when there are tools. The error is ErrNoTemplate or a
// *TemplateError.
func (t *Tokenizer) ChatTemplate(name string) (*ChatTemplate, error) {
	wanted := name
	if name == "" {
		wanted = defaultTemplate
	}
	source, ok := t.chat[wanted]
	if !ok && name == "" {
		return nil, fmt.Errorf("%w in the model's folder or file", ErrNoTemplate)
	}
	if !ok {
		return nil, fmt.Errorf("%w named %q in the model's folder or file", ErrNoTemplate, name)
	}
	c, err := t.ParseChatTemplate(wanted, source)
	if err != nil {
		return nil, err
	}
	if tools, ok := t.chat[toolTemplate]; ok && name == "" {
		c.withTools, err = t.ParseChatTemplate(toolTemplate, tools)
	}
	return c, err
}

// Templates are the sources of the model's templates by name; the default one is "default".
func (t *Tokenizer) Templates() map[string]string { return maps.Clone(t.chat) }

// Names of templates in a folder that has several.
const (
	defaultTemplate = "default"
	toolTemplate    = "tool_use"
)

// ParseChatTemplate compiles a template that the user brought, with this tokenizer's special
// tokens as its variables; name is for error messages. The error is a *TemplateError.
func (t *Tokenizer) ParseChatTemplate(name, source string) (*ChatTemplate, error) {
	rewritten, err := rewriteTemplate(source)
	if err != nil {
		return nil, &TemplateError{Name: name, Message: err.Error()}
	}
	compiled, err := jinja.Compile(strings.Join(rewritten.parts, ""))
	if err != nil {
		return nil, &TemplateError{Name: name, Message: err.Error()}
	}
	return &ChatTemplate{
		name: name, compiled: compiled, special: t.special.names,
		functions:  rewritten.functions,
		takesTools: rewritten.names["tools"], takesParts: rewritten.loopsOverContent,
	}, nil
}

// SupportsTools reports whether the template looks at tools at all.
func (c *ChatTemplate) SupportsTools() bool { return c.takesTools || c.withTools != nil }

// MessagesJSON is messages in the form that Render takes.
func MessagesJSON(messages []Message) json.RawMessage {
	raw, err := json.Marshal(messages)
	if err != nil {
		panic("messages of two strings have no JSON: " + err.Error())
	}
	return raw
}

// readChat finds the chat templates: tokenizer_config.json has one, or a list with names;
// the file chat_template.jinja comes before them.
func (t *Tokenizer) readChat(fsys fs.FS, raw json.RawMessage) error {
	t.chat = map[string]string{}
	var named []struct{ Name, Template string }
	var one *string
	switch {
	case len(raw) == 0:
	case json.Unmarshal(raw, &one) == nil:
		if one != nil {
			t.chat[defaultTemplate] = *one
		}
	case json.Unmarshal(raw, &named) == nil:
		for _, n := range named {
			t.chat[n.Name] = n.Template
		}
	default:
		return fmt.Errorf("%s: chat_template: found %s where a string or a list of named "+
			"templates should be", configName, clip(raw))
	}
	data, err := fs.ReadFile(fsys, "chat_template.jinja")
	if err == nil {
		t.chat[defaultTemplate] = string(data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("chat_template.jinja: %w", err)
	}
	return nil
}
