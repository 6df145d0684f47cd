// Package tokenizer turns text into token IDs and back, and renders chat templates.
//
// It reads what a Hugging Face model folder carries: tokenizer.json alone is enough;
// tokenizer_config.json, special_tokens_map.json, generation_config.json and
// chat_template.jinja add the names of special tokens and the chat template. What a
// tokenizer.json asks for and this package does not do is refused at load, with its JSON path.
//
// A text goes through the parts in the order of tokenizer.json: added tokens are cut out
// (added.go), the rest is normalized (normalize.go), split into pieces (pretokenize.go), each
// piece is encoded (bpe.go), and the post-processor adds a BOS (postprocess.go). Back it goes
// through the decoder (decode.go, stream.go).
//
// A Tokenizer never changes after Load and may be used by many goroutines at once.
package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"sync"
)

// ErrUnsupported is wrapped by Load's error when the files are well formed but ask for
// something this package does not do.
var ErrUnsupported = errors.New("not supported")

// Tokenizer is one model's vocabulary with its rules for text in both directions.
type Tokenizer struct {
	tokens     []vocabToken // by ID
	normalizer normalizer
	pre        *preTokenizer
	model      *bpe
	around     template
	decoder    *decoder
	// added are looked for before normalization, addedLate after it.
	added, addedLate *addedMatcher
	special          specialTokens
	chat             map[string]string // chat templates by name
	spare            sync.Pool         // of *scratch
}

// vocabToken is what an ID stands for.
type vocabToken struct {
	text    string
	known   bool // IDs may have holes
	special bool
}

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

// Encode returns the token IDs of text. Bytes that are not UTF-8 count as U+FFFD. It takes
// time in proportion to len(text), up to a logarithm.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	text = validUTF8(text)
	work, ok := t.spare.Get().(*scratch)
	if !ok {
		work = &scratch{}
	}
	defer t.spare.Put(work)
	out := make([]int32, 0, len(text)/3+len(t.around.before)+len(t.around.behind))
	if o.AddSpecial {
		out = append(out, t.around.before...)
	}
	piece := func(text string) { out = t.model.encode(text, work, out) }
	found := func(id int32) { out = append(out, id) }
	t.added.split(text, o.ParseSpecial, func(text string, offset int) {
		text = t.normalizer.apply(text)
		t.addedLate.split(text, o.ParseSpecial, func(text string, inner int) {
			t.pre.split(text, offset+inner == 0, piece)
		}, found)
	}, found)
	if o.AddSpecial {
		out = append(out, t.around.behind...)
	}
	return out
}

// Decode returns the text of ids. IDs outside the vocabulary are left out, as are special
// tokens if skipSpecial is set. The result is always valid UTF-8.
//
// Of a run of byte tokens that is not UTF-8 throughout, the reference spoils all of it;
// here the characters that are whole are kept, so that a stream can show them at once.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var out strings.Builder
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		out.WriteString(s.Push(id))
	}
	out.WriteString(s.Flush())
	return out.String()
}

// VocabSize is one more than the largest token ID, added tokens included.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

func (t *Tokenizer) known(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].known
}

// BOS is the token that begins a text, if the model has one.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.special.bos, t.special.hasBOS }

// EOS lists the tokens that end a generation, ascending: those of generation_config.json
// and the eos_token of tokenizer_config.json. It is empty if no file names one.
func (t *Tokenizer) EOS() []int32 { return slices.Clone(t.special.eos) }

// IsSpecial reports whether id is a special token, which Decode can skip.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.known(id) && t.tokens[id].special }

// Token returns the token's name as tokenizer.json writes it ("▁the", "Ġthe", "<0x0A>"),
// or "" for an ID outside the vocabulary.
func (t *Tokenizer) Token(id int32) string {
	if !t.known(id) {
		return ""
	}
	return t.tokens[id].text
}

// TokenBytes returns the bytes that a token adds in the middle of a text; they need not be
// whole characters. It is nil for an ID outside the vocabulary.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if !t.known(id) {
		return nil
	}
	bytes, _ := t.decoder.tokenBytes(t.decoder.tokenText(t.tokens[id].text, false))
	return []byte(bytes)
}
