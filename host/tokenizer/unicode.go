package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxMarks is how many combining marks in a row the norm package takes before it puts a
// joiner between them (its stream-safe format), which the Unicode forms do not have.
const maxMarks = 30

// composed is NFC or NFKC, decomposed NFD or NFKD, without the joiner.
func composed(form norm.Form) func(string) string {
	return func(text string) string {
		if form.IsNormalString(text) {
			return text
		}
		if !manyMarks(text) {
			return form.String(text)
		}
		return string(compose(decompose(text, form)))
	}
}

func decomposed(form norm.Form) func(string) string {
	return func(text string) string {
		if form.IsNormalString(text) || !manyMarks(text) {
			return form.String(text)
		}
		return string(decompose(text, form))
	}
}

// manyMarks reports whether text might hold more marks in a row than the norm package takes.
// One character decomposes into at most four marks.
func manyMarks(text string) bool {
	run := 0
	for i := 0; i < len(text); {
		p := norm.NFKD.PropertiesString(text[i:])
		run++
		if p.CCC() == 0 {
			run = 0
		}
		if run > maxMarks/4 {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// decompose decomposes each character and puts marks into canonical order.
func decompose(text string, form norm.Form) []rune {
	var out []rune
	for _, r := range text {
		if form == norm.NFC || form == norm.NFD {
			out = append(out, []rune(norm.NFD.String(string(r)))...)
		} else {
			out = append(out, []rune(norm.NFKD.String(string(r)))...)
		}
	}
	for start := 0; start < len(out); {
		end := start + 1
		for end < len(out) && markClass(out[end]) != 0 {
			end++
		}
		marks := out[start:end]
		if markClass(marks[0]) == 0 {
			marks = marks[1:]
		}
		slices.SortStableFunc(marks, func(a, b rune) int {
			return int(markClass(a)) - int(markClass(b))
		})
		start = end
	}
	return out
}

// markClass is the canonical combining class, 0 for a character that begins a new one.
func markClass(r rune) uint8 {
	return norm.NFD.PropertiesString(string(r)).CCC()
}

// compose joins decomposed characters, as the canonical composition of Unicode says: a mark
// joins the last starter unless one of its own class or above stands between them.
func compose(text []rune) []rune {
	out := text[:0]
	starter, lastClass := -1, 0
	for _, r := range text {
		class := int(markClass(r))
		if starter >= 0 && (starter == len(out)-1 || lastClass < class) {
			if pair, ok := composePair(out[starter], r); ok {
				out[starter] = pair
				continue
			}
		}
		if class == 0 {
			starter = len(out)
		}
		lastClass = class
		out = append(out, r)
	}
	return out
}

// composePair returns the one character that two compose into. The norm package does it, as
// two characters cannot make it insert a joiner.
func composePair(a, b rune) (rune, bool) {
	both := norm.NFC.String(string([]rune{a, b}))
	r, size := utf8.DecodeRuneInString(both)
	return r, size == len(both)
}

// validUTF8 replaces what is not UTF-8 by U+FFFD: one for each longest piece that could have
// begun a character, as browsers and Rust do it. (strings.ToValidUTF8 writes one for a run.)
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && size == 1 {
			size = brokenPrefix(text)
		}
		out.WriteRune(r)
		text = text[size:]
	}
	return out.String()
}

// brokenPrefix is the length of the longest start of text, at least 1, that could begin a
// character; text begins with a byte that does not.
func brokenPrefix(text string) int {
	for n := min(len(text), utf8.UTFMax-1); n > 1; n-- {
		if incomplete(text[:n]) {
			return n
		}
	}
	return 1
}

// incomplete reports whether text is the start of a character that lacks its end.
func incomplete(text string) bool {
	return len(text) > 0 && !utf8.FullRuneInString(text)
}
