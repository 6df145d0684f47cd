package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"
)

// Why a chat could not be rendered. All are the client's or the model folder's doing.
var (
	// ErrNoTemplate: the model folder has no chat template, or none of that name.
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
	// Now is what strftime_now tells; the zero time means the current time.
	Now time.Time
}

// ChatTemplate is a compiled chat template. It may be used by many goroutines at once.
type ChatTemplate struct{}

// ChatTemplate returns the model's template of that name; "" is the default one. The error
// is ErrNoTemplate or a *TemplateError.
func (t *Tokenizer) ChatTemplate(name string) (*ChatTemplate, error) { return nil, ErrNoTemplate }

// ParseChatTemplate compiles a template that the user brought, with this tokenizer's special
// tokens as its variables; name is for error messages. The error is a *TemplateError.
func (t *Tokenizer) ParseChatTemplate(name, source string) (*ChatTemplate, error) {
	return nil, ErrNoTemplate
}

// SupportsTools reports whether the template looks at tools at all.
func (c *ChatTemplate) SupportsTools() bool { return false }

// Render returns the prompt of a conversation, exactly as Jinja2 in the setting of
// Hugging Face transformers renders it. messages is a JSON array of message objects as an
// OpenAI client sends them; the order of keys is kept. The text already holds its special
// tokens: encode it with ParseSpecial and without AddSpecial. The error is ErrNoTools, a
// *TemplateError, or says what is wrong with the JSON.
func (c *ChatTemplate) Render(messages json.RawMessage, o RenderOptions) (string, error) {
	return "", ErrNoTemplate
}

// MessagesJSON is messages in the form that Render takes.
func MessagesJSON(messages []Message) json.RawMessage { return nil }

// chatSource is a template as the model folder has it.
type chatSource struct{ name, text string }

func (t *Tokenizer) readChat(fsys fs.FS, raw json.RawMessage) error { return nil }
