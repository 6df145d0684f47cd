// Package tokenizer turns text into token IDs and back, and renders chat templates.
//
// It reads what a Hugging Face model folder carries: tokenizer.json alone is enough;
// tokenizer_config.json, special_tokens_map.json, generation_config.json and
// chat_template.jinja add the names of special tokens and the chat template. What a
// tokenizer.json asks for and this package does not do is refused at load, with its JSON path.
//
// A Tokenizer never changes after Load and may be used by many goroutines at once.
package tokenizer

import (
	"errors"
	"io/fs"
)

// ErrUnsupported is wrapped by Load's error when the files are well formed but ask for
// something this package does not do.
var ErrUnsupported = errors.New("not supported")

// Tokenizer is one model's vocabulary with its rules for text in both directions.
type Tokenizer struct{}

// EncodeOptions says how special tokens are treated while encoding. The zero value is for
// text that comes from outside and must stay text.
type EncodeOptions struct {
	// AddSpecial adds what the post-processor adds, such as a leading BOS.
	AddSpecial bool
	// ParseSpecial recognises the text of special tokens ("<s>", "<|im_end|>") as these
	// tokens; without it they are encoded as ordinary text. Added tokens that are not
	// special are recognised either way.
	ParseSpecial bool
}

// Load reads a model folder. The error says which file and which JSON path is at fault.
func Load(fsys fs.FS) (*Tokenizer, error) {
	return nil, errors.New("tokenizer: not built yet")
}

// Encode returns the token IDs of text. Bytes that are not UTF-8 count as U+FFFD. It takes
// time in proportion to len(text), up to a logarithm.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 { return nil }

// Decode returns the text of ids. IDs outside the vocabulary are left out, as are special
// tokens if skipSpecial is set. The result is always valid UTF-8.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string { return "" }

// VocabSize is one more than the largest token ID, added tokens included.
func (t *Tokenizer) VocabSize() int { return 0 }

// BOS is the token that begins a text, if the model has one.
func (t *Tokenizer) BOS() (id int32, ok bool) { return 0, false }

// EOS lists the tokens that end a generation, ascending: those of generation_config.json
// and the eos_token of tokenizer_config.json. It is empty if no file names one.
func (t *Tokenizer) EOS() []int32 { return nil }

// IsSpecial reports whether id is a special token, which Decode can skip.
func (t *Tokenizer) IsSpecial(id int32) bool { return false }

// Token returns the token's name as tokenizer.json writes it ("▁the", "Ġthe", "<0x0A>"),
// or "" for an ID outside the vocabulary.
func (t *Tokenizer) Token(id int32) string { return "" }

// TokenBytes returns the bytes that a token adds in the middle of a text; they need not be
// whole characters. It is nil for an ID outside the vocabulary.
func (t *Tokenizer) TokenBytes(id int32) []byte { return nil }
