package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// byteMode says how token texts become bytes.
type byteMode int

const (
	plainText    byteMode = iota
	byteFallback          // "<0x0A>" is a byte, all else is text
	byteLevel             // the byte-level alphabet
)

// decoder is the decoder of a tokenizer.json, sorted by what it works on: the text of each
// token, then the bytes of all tokens, then the whole text.
type decoder struct {
	// separate puts a space between tokens; it is what happens without any decoder.
	separate bool
	tokens   []tokenStep
	bytes    byteMode
	fused    bool
	text     []func() textStep
}

// tokenStep changes the text of one token; first says that no token came before it.
type tokenStep func(token string, first bool) string

// textStep changes the whole text while it comes in. push returns what is certain after one
// more part, flush the rest; parts are whole characters.
type textStep interface {
	push(part string) string
	flush() string
}

func newDecoder(raw json.RawMessage) (*decoder, error) {
	d := &decoder{}
	f, err := component("decoder", raw)
	if err != nil {
		return nil, err
	}
	if f == nil {
		d.separate = true
		return d, nil
	}
	return d, d.add(f, 0)
}

// add appends the decoder f, which may be a Sequence of others.
func (d *decoder) add(f *fields, depth int) error {
	switch f.kind {
	case "Sequence":
		for i, raw := range f.list("decoders") {
			if depth == maxNesting {
				return tooDeep(f.path)
			}
			part, err := component(f.part("decoders", i), raw)
			if err == nil && part != nil {
				err = d.add(part, depth+1)
			}
			if err != nil {
				return err
			}
		}
	case "Replace":
		d.addReplace(f)
	case "Strip":
		d.addStrip(f)
	case "Metaspace":
		mark := string(f.char("replacement", "▁"))
		f.text("str_rep", "")
		f.flag("split", true)
		d.addToken(f, metaspaceText(mark, prependScheme(f)))
	case "ByteFallback":
		d.addBytes(f, byteFallback)
	case "ByteLevel":
		f.flag("add_prefix_space", true) // these three are about encoding
		f.flag("trim_offsets", true)
		f.flag("use_regex", true)
		d.addBytes(f, byteLevel)
		d.fused = true
	case "Fuse":
		d.fused = true
	default:
		return f.unsupported()
	}
	return f.done()
}

// order refuses a decoder that stands behind one of a later kind.
func (f *fields) order(behind string) {
	f.fail("type", fmt.Errorf("%s behind %s is %w", f.kind, behind, ErrUnsupported))
}

func (d *decoder) addToken(f *fields, step tokenStep) {
	switch {
	case d.fused:
		f.order("Fuse or ByteLevel")
	case d.bytes != plainText:
		f.order("ByteFallback and not Fuse")
	}
	d.tokens = append(d.tokens, step)
}

func (d *decoder) addBytes(f *fields, mode byteMode) {
	if d.fused || d.bytes != plainText {
		f.order("Fuse, ByteFallback or ByteLevel")
	}
	d.bytes = mode
}

func (d *decoder) addReplace(f *fields) {
	if !d.fused {
		replace := f.replacement()
		d.addToken(f, func(token string, _ bool) string { return replace(token) })
		return
	}
	pattern, isRegex := f.pattern("pattern")
	content := f.text("content", "")
	if isRegex {
		f.fail("pattern", fmt.Errorf("a Regex behind Fuse or ByteLevel is %w", ErrUnsupported))
	}
	if pattern != "" {
		d.text = append(d.text, func() textStep {
			return &replaceStep{pattern: pattern, content: content}
		})
	}
}

func (d *decoder) addStrip(f *fields) {
	char := string(f.char("content", " "))
	start, stop := f.count("start"), f.count("stop")
	if d.fused {
		d.text = append(d.text, func() textStep {
			return &stripStep{char: char, start: start, stop: stop}
		})
		return
	}
	d.addToken(f, func(token string, _ bool) string {
		s := stripStep{char: char, start: start, stop: stop}
		return s.push(token)
	})
}

// metaspaceText turns marks into spaces; the first token loses its marks if encoding put one
// in front.
func metaspaceText(mark, scheme string) tokenStep {
	return func(token string, first bool) string {
		if first && scheme != "never" {
			return strings.ReplaceAll(token, mark, "")
		}
		return strings.ReplaceAll(token, mark, " ")
	}
}

// tokenText runs the steps that work on single tokens.
func (d *decoder) tokenText(token string, first bool) string {
	for _, step := range d.tokens {
		token = step(token, first)
	}
	if d.separate && !first {
		token = " " + token
	}
	return token
}

// tokenBytes returns what a token's text stands for. isBytes says that it is bytes, which
// need not be whole characters and go together with the bytes beside them.
func (d *decoder) tokenBytes(text string) (bytes string, isBytes bool) {
	switch d.bytes {
	case byteLevel:
		return byteLevelBytes(text), true
	case byteFallback:
		if v, ok := byteToken(text); ok {
			return string([]byte{v}), true
		}
	}
	return text, false
}

// byteToken reads "<0x0A>".
func byteToken(token string) (b byte, ok bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	high, ok1 := hexDigit(token[3])
	low, ok2 := hexDigit(token[4])
	return high<<4 | low, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// stripStep takes up to start chars from the front of a text and up to stop from its end.
type stripStep struct {
	char        string
	start, stop int
	begun       bool   // the front is done
	taken       int    // chars taken from the front
	held        string // chars that may be the end
}

func (s *stripStep) push(part string) string {
	for !s.begun && part != "" {
		rest, found := strings.CutPrefix(part, s.char)
		if !found || s.taken == s.start {
			s.begun = true
			break
		}
		s.taken++
		part = rest
	}
	if s.stop == 0 {
		return part
	}
	text := s.held + part
	keep := len(text)
	for range s.stop {
		if !strings.HasSuffix(text[:keep], s.char) {
			break
		}
		keep -= len(s.char)
	}
	s.held = text[keep:]
	return text[:keep]
}

// flush drops what is held: it is the end.
func (s *stripStep) flush() string {
	s.begun, s.taken, s.held = false, 0, ""
	return ""
}

// replaceStep replaces a fixed pattern. It holds back what may be the pattern's start.
type replaceStep struct {
	pattern, content string
	held             string
}

func (r *replaceStep) push(part string) string {
	text := r.held + part
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, r.pattern)
		if !found {
			break
		}
		out.WriteString(before)
		out.WriteString(r.content)
		text = after
	}
	keep := max(0, len(text)-len(r.pattern)+1)
	for keep < len(text) && !strings.HasPrefix(r.pattern, text[keep:]) {
		_, size := utf8.DecodeRuneInString(text[keep:])
		keep += size
	}
	out.WriteString(text[:keep])
	r.held = text[keep:]
	return out.String()
}

func (r *replaceStep) flush() string {
	rest := r.held
	r.held = ""
	return rest
}
