package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// A splitter is one pre-tokenizer: it hands the pieces of a text on, in order, none empty.
// first says that text begins where the whole input begins.
type splitter func(text string, first bool, piece func(text string, first bool))

// preTokenizer is the pre_tokenizer of a tokenizer.json.
type preTokenizer struct {
	steps []splitter
	// byteLevel says that pieces are to be read byte by byte in the byte-level alphabet.
	byteLevel bool
	chars     *charClasses
}

// split hands the pieces of a text to piece.
func (p *preTokenizer) split(text string, first bool, piece func(string)) {
	p.from(0, text, first, piece)
}

func (p *preTokenizer) from(step int, text string, first bool, piece func(string)) {
	switch step {
	case len(p.steps):
		piece(text)
	case len(p.steps) - 1:
		p.steps[step](text, first, func(text string, _ bool) { piece(text) })
	default:
		p.steps[step](text, first, func(text string, first bool) {
			p.from(step+1, text, first, piece)
		})
	}
}

func newPreTokenizer(raw json.RawMessage) (*preTokenizer, error) {
	p := &preTokenizer{}
	return p, p.add("pre_tokenizer", raw, 0)
}

// add appends the pre-tokenizer at path, which may be a Sequence of others.
func (p *preTokenizer) add(path string, raw json.RawMessage, depth int) error {
	f, err := component(path, raw)
	if f == nil || err != nil {
		return err
	}
	if p.byteLevel {
		return &pathError{path, fmt.Errorf("a pre-tokenizer after ByteLevel is %w", ErrUnsupported)}
	}
	switch f.kind {
	case "Sequence":
		for i, part := range f.list("pretokenizers") {
			if depth == maxNesting {
				return tooDeep(path)
			}
			if err := p.add(f.part("pretokenizers", i), part, depth+1); err != nil {
				return err
			}
		}
	case "ByteLevel":
		p.addByteLevel(f)
	case "Split":
		p.addSplit(f)
	case "Metaspace":
		p.addMetaspace(f)
	case "Digits":
		how := contiguous
		if f.flag("individual_digits", false) {
			how = isolated
		}
		p.steps = append(p.steps, splitBy(charFinder(unicode.IsNumber), how, false))
	case "Punctuation":
		how := f.behavior("behavior", "Isolated")
		p.steps = append(p.steps, splitBy(charFinder(isPunctuation), how, false))
	default:
		return f.unsupported()
	}
	return f.done()
}

func isPunctuation(r rune) bool {
	return unicode.IsPunct(r) || r < 0x80 && strings.ContainsRune("$+<=>^`|~", r)
}

func (p *preTokenizer) addByteLevel(f *fields) {
	p.byteLevel = true
	f.flag("trim_offsets", true) // of offsets, which nothing here reports
	if f.flag("add_prefix_space", true) {
		p.steps = append(p.steps, func(text string, _ bool, piece func(string, bool)) {
			if text[0] != ' ' {
				text = " " + text
			}
			piece(text, false)
		})
	}
	if f.flag("use_regex", true) {
		p.steps = append(p.steps, splitBy(gpt2Words{p.classes()}, isolated, false))
	}
}

func (p *preTokenizer) classes() *charClasses {
	if p.chars == nil {
		p.chars = newCharClasses()
	}
	return p.chars
}

func (p *preTokenizer) addSplit(f *fields) {
	pattern, isRegex := f.pattern("pattern")
	how, invert := f.behavior("behavior", ""), f.flag("invert", false)
	if f.err != nil {
		return
	}
	var find finder
	switch {
	case !isRegex:
		find = textFinder(pattern)
	case pattern == gpt2Pattern:
		find = gpt2Words{p.classes()}
	case pattern == llama3Pattern:
		find = llama3Words{p.classes(), 3}
	case pattern == qwen2Pattern:
		find = llama3Words{p.classes(), 1}
	default:
		compiled, err := newRegexFinder(pattern, p.classes())
		if err != nil {
			f.fail("pattern.Regex", err)
			return
		}
		find = compiled
	}
	p.steps = append(p.steps, splitBy(find, how, invert))
}

// addMetaspace adds SentencePiece's own: spaces become ▁, and words begin with one.
func (p *preTokenizer) addMetaspace(f *fields) {
	mark := string(f.char("replacement", "▁"))
	f.text("str_rep", "") // an older spelling of replacement, always written beside it
	scheme := prependScheme(f)
	words := f.flag("split", true)
	p.steps = append(p.steps, func(text string, first bool, piece func(string, bool)) {
		text = strings.ReplaceAll(text, " ", mark)
		if scheme == "always" || scheme == "first" && first {
			if !strings.HasPrefix(text, mark) {
				text = mark + text
			}
		}
		piece(text, first)
	})
	if words {
		p.steps = append(p.steps, splitBy(textFinder(mark), mergedWithNext, false))
	}
}

// prependScheme reads whether a Metaspace puts its mark in front: always, first or never.
func prependScheme(f *fields) string {
	scheme := "always"
	if !f.flag("add_prefix_space", true) { // the older spelling
		scheme = "never"
	}
	scheme = f.text("prepend_scheme", scheme)
	if scheme != "always" && scheme != "first" && scheme != "never" {
		f.fail("prepend_scheme", fmt.Errorf("%q is %w", scheme, ErrUnsupported))
	}
	return scheme
}
