package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Values of Object.
const (
	ObjectCompletion = "text_completion"
	ObjectChat       = "chat.completion"
	ObjectChatChunk  = "chat.completion.chunk"
	ObjectModel      = "model"
	ObjectList       = "list"
)

// Usage counts a request's tokens.
type Usage struct {
	PromptTokens        int          `json:"prompt_tokens"`
	CompletionTokens    int          `json:"completion_tokens"`
	TotalTokens         int          `json:"total_tokens"`
	PromptTokensDetails TokenDetails `json:"prompt_tokens_details"`
}

// TokenDetails says how many prompt tokens were found in the prefix cache.
type TokenDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// NewUsage adds up.
func NewUsage(prompt, completion, cached int) Usage {
	return Usage{prompt, completion, prompt + completion, TokenDetails{cached}}
}

// UsageField is usage in a response or a chunk: left out, null, or numbers. In a stream with
// include_usage every chunk but the last shows null, or with continuous_usage_stats the numbers so
// far.
type UsageField struct {
	Shown bool
	Usage *Usage
}

// ShowUsage shows numbers, or null when u is nil.
func ShowUsage(u *Usage) UsageField { return UsageField{Shown: true, Usage: u} }

// IsZero makes omitzero leave the field out.
func (u UsageField) IsZero() bool { return !u.Shown }

// MarshalJSON writes the numbers or null.
func (u UsageField) MarshalJSON() ([]byte, error) { return json.Marshal(u.Usage) }

// UnmarshalJSON reads the numbers or null.
func (u *UsageField) UnmarshalJSON(b []byte) error {
	u.Shown = true
	return json.Unmarshal(b, &u.Usage)
}

// CompletionResponse is the answer to a completion request, and each chunk of a stream.
type CompletionResponse struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"` // ObjectCompletion
	Created           int64              `json:"created"`
	Model             string             `json:"model"`
	SystemFingerprint string             `json:"system_fingerprint,omitempty"`
	Choices           []CompletionChoice `json:"choices"` // never null
	Usage             UsageField         `json:"usage,omitzero"`
}

// CompletionChoice is the text for one prompt, or a piece of it.
type CompletionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *CompletionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
	// TokenIDs are the tokens of this text, when asked for by return_token_ids.
	TokenIDs []int32 `json:"token_ids,omitempty"`
}

// Nothing is the type of a field that is always null.
type Nothing struct{}

// ChatResponse is the answer to a chat request.
type ChatResponse struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"` // ObjectChat
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	SystemFingerprint string       `json:"system_fingerprint,omitempty"`
	Choices           []ChatChoice `json:"choices"`
	Usage             UsageField   `json:"usage,omitzero"`
}

// ChatChoice is one answer.
type ChatChoice struct {
	Index        int           `json:"index"`
	Message      ReplyMessage  `json:"message"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

// ReplyMessage is the assistant's message. Content is null on the wire when there are calls alone.
type ReplyMessage struct {
	Role      string      `json:"role"`
	Content   string      `json:"content"`
	Refusal   *Nothing    `json:"refusal"`
	ToolCalls []ReplyCall `json:"tool_calls,omitempty"`
}

// MarshalJSON writes the message.
func (m ReplyMessage) MarshalJSON() ([]byte, error) {
	type plain ReplyMessage
	out := struct {
		plain
		Content *string `json:"content"`
	}{plain: plain(m)}
	if m.Content != "" || len(m.ToolCalls) == 0 {
		out.Content = &m.Content
	}
	return marshal(out)
}

// ChatChunk is one event of a chat stream. The first carries the role, the last of a choice carries
// its finish reason alone.
type ChatChunk struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"` // ObjectChatChunk
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	SystemFingerprint string            `json:"system_fingerprint,omitempty"`
	Choices           []ChatChunkChoice `json:"choices"` // never null
	Usage             UsageField        `json:"usage,omitzero"`
}

// ChatChunkChoice is a piece of one answer.
type ChatChunkChoice struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

// Delta is what a chunk adds. Content is nil in chunks without text.
type Delta struct {
	Role      string      `json:"role,omitempty"`
	Content   *string     `json:"content,omitempty"`
	ToolCalls []CallDelta `json:"tool_calls,omitempty"`
}

// ModelList answers GET /v1/models.
type ModelList struct {
	Object string  `json:"object"` // ObjectList
	Data   []Model `json:"data"`   // never null
}

// Model is one served name.
type Model struct {
	ID          string `json:"id"`
	Object      string `json:"object"` // ObjectModel
	Created     int64  `json:"created"`
	OwnedBy     string `json:"owned_by"` // "engine"
	MaxModelLen int    `json:"max_model_len"`
}

// ModelNotFound is the error for a name that is not served.
func ModelNotFound(name string, served []string) *Error {
	return Errorf(CodeModelNotFound, "model", "the model %.100q does not exist here; served: %s",
		name, strings.Join(served, ", "))
}

// ContextLength is the error for a prompt that does not fit. Clients look for its first words.
func ContextLength(limit, prompt, output int) *Error {
	return Errorf(CodeContextLength, "prompt", "This model's maximum context length is %d tokens. "+
		"The request has %d in its prompt and asks for at least %d more.", limit, prompt, output)
}

// marshal is json.Marshal without the escapes meant for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
