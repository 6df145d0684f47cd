package api

import (
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/tokenizer"
)

// Model is what requests need to know of the model that is served.
type Model struct {
	// Names are those that clients may send; the first is canonical.
	Names   []string
	Context int // most tokens of one request, prompt and output
	Hidden  int // width of the vectors that may stand for tokens in a prompt; 0: none may
	Created time.Time
	// Fingerprint tells apart what bears on the output: model, build, configuration.
	Fingerprint string
	Tokenizer   *tokenizer.Tokenizer
	// Template is the chat template; with nil, TemplateError says why there is none.
	Template      *tokenizer.ChatTemplate
	TemplateError error
	Defaults      openai.Defaults
	// ToolParser names the way the model writes tool calls: auto (as its template does), none,
	// llama3, qwen or mistral.
	ToolParser string
	// Files are the tokenizer's files, which routers fetch.
	Files fs.FS

	forms     forms
	styleOnce sync.Once
	style     string // what styleOf found out

	longestOnce sync.Once
	longest     int // bytes of the longest token
}

// named checks the name that a request asks for; none means the canonical one.
func (m *Model) named(name string) *openai.Error {
	if name == "" || slices.Contains(m.Names, name) {
		return nil
	}
	return openai.ModelNotFound(name, m.Names)
}

func value[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

// tokens returns a prompt's token ids: those given, or the text's with what the model puts around.
func (m *Model) tokens(p openai.Prompt) (prompt, *openai.Error) {
	if p.Items != nil {
		return m.mixed(p.Items)
	}
	if p.Tokens != nil {
		return prompt{ids: p.Tokens}, nil
	}
	ids, fault := m.encode(p.Text, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	return prompt{ids: ids}, fault
}

// encode turns a text into tokens, unless it is so long that it cannot fit: then the work is not
// worth beginning.
func (m *Model) encode(text string, o tokenizer.EncodeOptions) ([]int32, *openai.Error) {
	m.longestOnce.Do(func() {
		for id := range int32(m.Tokenizer.VocabSize()) {
			m.longest = max(m.longest, len(m.Tokenizer.TokenBytes(id)))
		}
	})
	const shrink = 4 // Normalization may make a text so much shorter.
	if most := m.Context * m.longest * shrink; len(text) > most {
		return nil, openai.Errorf(openai.CodeContextLength, "prompt", "This model's maximum "+
			"context length is %d tokens, which is at most %d bytes. The prompt has %d bytes.",
			m.Context, most, len(text))
	}
	return m.Tokenizer.Encode(text, o), nil
}

// text is a prompt as it was given, or what its tokens say.
func (m *Model) text(p openai.Prompt, ids []int32) string {
	if p.Tokens == nil {
		return p.Text
	}
	return m.Tokenizer.Decode(ids, true)
}
