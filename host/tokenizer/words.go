package tokenizer

// A finder finds what a pre-tokenizer's pattern matches. find returns the first match at or
// after pos, or start = -1 if there is none; a match is never empty.
type finder interface {
	find(text string, pos int) (start, end int)
}

// The patterns of the model families that use byte-level BPE. They look ahead, which the
// regexp package cannot, and they are the inner loop of encoding, so each is a matcher
// written by hand; a pattern is recognised by its exact text.
const (
	gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
		` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	qwen2Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` +
		` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// gpt2Words matches gpt2Pattern.
type gpt2Words struct{ chars *charClasses }

func (w gpt2Words) find(text string, pos int) (start, end int) {
	if pos >= len(text) {
		return -1, 0
	}
	if n := contraction(text[pos:], false); n > 0 {
		return pos, pos + n
	}
	at := pos
	class, size := w.chars.at(text, at)
	if text[at] == ' ' {
		at++
		class, size = w.chars.at(text, at)
	}
	if size == 0 || class == space || class == newline {
		return pos, w.chars.spaces(text, pos)
	}
	return pos, w.chars.skip(text, at+size, class)
}

// llama3Words matches llama3Pattern (digits = 3) and qwen2Pattern (digits = 1).
type llama3Words struct {
	chars  *charClasses
	digits int
}

func (w llama3Words) find(text string, pos int) (start, end int) {
	if pos >= len(text) {
		return -1, 0
	}
	if n := contraction(text[pos:], true); n > 0 {
		return pos, pos + n
	}
	class, size := w.chars.at(text, pos)
	next, nextSize := w.chars.at(text, pos+size)
	switch {
	case class == letter:
		return pos, w.chars.skip(text, pos+size, letter)
	case next == letter && (class == space || class == other):
		return pos, w.chars.skip(text, pos+size+nextSize, letter)
	case class == number:
		return pos, w.number(text, pos)
	case class == other:
		return pos, w.punctuation(text, pos+size)
	case text[pos] == ' ' && next == other && nextSize > 0:
		return pos, w.punctuation(text, pos+size+nextSize)
	}
	if _, _, newlines := w.chars.blank(text, pos); newlines > pos {
		return pos, newlines
	}
	return pos, w.chars.spaces(text, pos)
}

func (w llama3Words) number(text string, i int) int {
	for range w.digits {
		class, size := w.chars.at(text, i)
		if class != number {
			break
		}
		i += size
	}
	return i
}

func (w llama3Words) punctuation(text string, i int) int {
	return w.chars.skip(text, w.chars.skip(text, i, other), newline)
}

// contraction returns the length of an English contraction at the start of text, or 0. With
// fold, capitals count, and so does ſ (U+017F), whose capital is S.
func contraction(text string, fold bool) int {
	if text[0] != '\'' || len(text) < 2 {
		return 0
	}
	lower := func(i int) byte {
		if i < len(text) && fold && text[i] >= 'A' && text[i] <= 'Z' {
			return text[i] + 'a' - 'A'
		}
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	switch first, second := lower(1), lower(2); {
	case first == 's' || first == 't' || first == 'm' || first == 'd':
		return 2
	case first == 'r' && second == 'e', first == 'v' && second == 'e',
		first == 'l' && second == 'l':
		return 3
	case fold && first == 0xC5 && second == 0xBF:
		return 3
	}
	return 0
}
