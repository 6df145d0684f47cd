package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes token IDs one at a time. Everything it returned, put together, is exactly
// what Decode gives for the same IDs, and no part of it ends inside a UTF-8 character.
type Stream struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	begun       bool   // a token came in
	pending     []byte // the start of a character; at most three bytes
	steps       []textStep
}

// NewStream starts a text. With skipSpecial, special tokens add nothing to it.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{tokenizer: t, skipSpecial: skipSpecial}
	for _, step := range t.decoder.text {
		s.steps = append(s.steps, step())
	}
	return s
}

// Push adds one token and returns the text that is certain now; often the token's own text,
// "" while a character is incomplete.
func (s *Stream) Push(id int32) string {
	t := s.tokenizer
	if !t.known(id) || s.skipSpecial && t.IsSpecial(id) {
		return ""
	}
	text := t.decoder.tokenText(t.tokens[id].text, !s.begun)
	s.begun = true
	text, isBytes := t.decoder.tokenBytes(text)
	switch {
	case isBytes && len(s.pending) == 0 && utf8.ValidString(text):
		return s.through(text)
	case isBytes:
		return s.through(s.complete(text))
	}
	return s.through(s.broken() + text)
}

// Flush ends the text and returns what was held back; bytes that never became a character
// come out as U+FFFD. The stream is then ready for another text.
func (s *Stream) Flush() string {
	var out strings.Builder
	text := s.broken()
	for i, step := range s.steps {
		for _, later := range s.steps[i:] {
			text = later.push(text)
		}
		out.WriteString(text)
		text = step.flush()
	}
	out.WriteString(text)
	s.begun = false
	return out.String()
}

// through runs a part of the text through the steps that work on the whole of it.
func (s *Stream) through(part string) string {
	for _, step := range s.steps {
		part = step.push(part)
	}
	return part
}

// complete adds bytes and returns the characters that are whole.
func (s *Stream) complete(bytes string) string {
	all := append(s.pending, bytes...)
	var out strings.Builder
	for len(all) > 0 {
		r, size := utf8.DecodeRune(all)
		if r == utf8.RuneError && size == 1 {
			if !utf8.FullRune(all) {
				break
			}
			size = s.brokenSize(all)
		}
		out.WriteRune(r)
		all = all[size:]
	}
	s.pending = append(s.pending[:0], all...)
	return out.String()
}

// broken gives up on the character that pending began.
func (s *Stream) broken() string {
	if len(s.pending) == 0 {
		return ""
	}
	var out strings.Builder
	for len(s.pending) > 0 {
		out.WriteRune(utf8.RuneError)
		s.pending = s.pending[s.brokenSize(s.pending):]
	}
	s.pending = nil
	return out.String()
}

// brokenSize is how many of the bytes, which begin no character, one U+FFFD stands for: as
// the reference does, all that could have been its start in byte-level vocabularies, and
// each byte for itself in those with byte fallback.
func (s *Stream) brokenSize(bytes []byte) int {
	if s.tokenizer.decoder.bytes == byteLevel {
		return brokenPrefix(string(bytes[:min(len(bytes), utf8.UTFMax)]))
	}
	return 1
}
