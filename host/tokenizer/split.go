package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// behavior says what becomes of the matches of a Split.
type behavior int

const (
	isolated           behavior = iota // each is a piece
	removed                            // each is left out
	mergedWithPrevious                 // each ends the piece before it
	mergedWithNext                     // each begins the piece after it
	contiguous                         // neighbouring ones are one piece
)

func (f *fields) behavior(key, otherwise string) behavior {
	switch name := f.text(key, otherwise); name {
	case "Isolated":
		return isolated
	case "Removed":
		return removed
	case "MergedWithPrevious":
		return mergedWithPrevious
	case "MergedWithNext":
		return mergedWithNext
	case "Contiguous":
		return contiguous
	default:
		f.fail(key, fmt.Errorf("%q is %w", name, ErrUnsupported))
		return isolated
	}
}

// span is text[start:end], either a match or what lies between two.
type span struct {
	start, end int
	match      bool
}

// splitBy splits at the matches of a pattern; with invert, at what lies between them.
func splitBy(find finder, how behavior, invert bool) splitter {
	if how == isolated {
		return func(text string, first bool, piece func(string, bool)) {
			eachSpan(find, text, func(s span) { piece(text[s.start:s.end], first && s.start == 0) })
		}
	}
	return func(text string, first bool, piece func(string, bool)) {
		var spans []span
		eachSpan(find, text, func(s span) {
			s.match = s.match != invert
			spans = append(spans, s)
		})
		for _, s := range join(spans, how) {
			piece(text[s.start:s.end], first && s.start == 0)
		}
	}
}

func eachSpan(find finder, text string, each func(span)) {
	for pos := 0; pos < len(text); {
		start, end := find.find(text, pos)
		if start < 0 {
			each(span{pos, len(text), false})
			return
		}
		if start > pos {
			each(span{pos, start, false})
		}
		each(span{start, end, true})
		pos = end
	}
}

// join makes pieces of spans. Of several matches in a row only the first joins the piece
// before it, and only the last the piece after it.
func join(spans []span, how behavior) []span {
	out := spans[:0]
	afterMatch := false
	for i, s := range spans {
		glue := false
		switch how {
		case contiguous:
			glue = i > 0 && afterMatch == s.match
		case mergedWithPrevious:
			glue = i > 0 && s.match && !afterMatch
		case mergedWithNext:
			glue = afterMatch && !s.match
		}
		afterMatch = s.match
		if how == removed && s.match {
			continue
		}
		if glue {
			s.start = out[len(out)-1].start
			out = out[:len(out)-1]
		}
		out = append(out, s)
	}
	return out
}

// textFinder finds a fixed text.
type textFinder string

func (t textFinder) find(text string, pos int) (start, end int) {
	i := strings.Index(text[pos:], string(t))
	if i < 0 || t == "" {
		return -1, 0
	}
	return pos + i, pos + i + len(t)
}

// charFinder finds single characters.
type charFinder func(r rune) bool

func (is charFinder) find(text string, pos int) (start, end int) {
	i := strings.IndexFunc(text[pos:], is)
	if i < 0 {
		return -1, 0
	}
	_, size := utf8.DecodeRuneInString(text[pos+i:])
	return pos + i, pos + i + size
}
