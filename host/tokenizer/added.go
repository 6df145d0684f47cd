package tokenizer

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is cut out of a text before anything else looks at it.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // only where no word character touches it
	lstrip     bool // takes the white space before it along
	rstrip     bool // takes the white space behind it along
	normalized bool // is looked for after normalization
	special    bool
}

// addedMatcher finds added tokens in a text: at each place the longest.
type addedMatcher struct {
	// tokens are ordered by text, so that those with a common beginning are neighbours and
	// reading on byte by byte narrows a range down.
	tokens []addedToken
	texts  []string
	// first holds, for each byte, the range of tokens that begin with it.
	first [256]struct{ start, end int }
}

// addedMatch is a token found in a text, at [start, end).
type addedMatch struct {
	start, end int
	token      *addedToken
}

// newAddedMatcher looks for each token as text writes it; of two that are written alike, for
// the first.
func newAddedMatcher(tokens []addedToken, text func(addedToken) string) *addedMatcher {
	order := make([]int, len(tokens))
	texts := make([]string, len(tokens))
	for i, t := range tokens {
		order[i], texts[i] = i, text(t)
	}
	sort.SliceStable(order, func(i, j int) bool { return texts[order[i]] < texts[order[j]] })
	m := &addedMatcher{}
	for _, i := range order {
		n := len(m.texts)
		if texts[i] == "" || n > 0 && m.texts[n-1] == texts[i] {
			continue
		}
		m.tokens, m.texts = append(m.tokens, tokens[i]), append(m.texts, texts[i])
		b := texts[i][0]
		if m.first[b].end == 0 {
			m.first[b].start = n
		}
		m.first[b].end = n + 1
	}
	return m
}

// next returns the longest token at the first place at or after pos where one stands.
func (m *addedMatcher) next(text string, pos int) (found addedMatch, ok bool) {
	if len(m.tokens) == 0 {
		return found, false
	}
	for i := pos; i < len(text); i++ {
		if m.first[text[i]].end == 0 {
			continue
		}
		if t := m.longest(text[i:]); t >= 0 {
			return addedMatch{i, i + len(m.texts[t]), &m.tokens[t]}, true
		}
	}
	return found, false
}

// longest returns the longest token that text begins with, or -1.
func (m *addedMatcher) longest(text string) int {
	best := -1
	start, end := m.first[text[0]].start, m.first[text[0]].end
	for depth := 1; start < end; depth++ {
		if len(m.texts[start]) == depth {
			best = start
			start++
		}
		if depth == len(text) {
			break
		}
		c := text[depth]
		group := m.texts[start:end]
		low := sort.Search(len(group), func(i int) bool { return group[i][depth] >= c })
		high := sort.Search(len(group), func(i int) bool { return group[i][depth] > c })
		start, end = start+low, start+high
	}
	return best
}

// split cuts a text at its added tokens: plain gets what lies between them and where that
// begins, found the tokens, in order. Unless parseSpecial is set, special tokens stay text.
func (m *addedMatcher) split(text string, parseSpecial bool,
	plain func(text string, offset int), found func(id int32)) {
	done := 0
	for pos := 0; ; {
		at, ok := m.next(text, pos)
		if !ok {
			break
		}
		pos = at.end
		if at.token.special && !parseSpecial ||
			at.token.singleWord && touchesWord(text, at.start, at.end) {
			continue
		}
		if at.token.lstrip {
			between := text[min(done, at.start):at.start]
			at.start -= len(between) - len(strings.TrimRightFunc(between, unicode.IsSpace))
		}
		if at.token.rstrip {
			at.end = len(text) - len(strings.TrimLeftFunc(text[at.end:], unicode.IsSpace))
		}
		if at.start > done {
			plain(text[done:at.start], done)
		}
		found(at.token.id)
		done = at.end
	}
	if done < len(text) {
		plain(text[done:], done)
	}
}

// touchesWord reports a word character right before or behind text[start:end].
func touchesWord(text string, start, end int) bool {
	before, size := utf8.DecodeLastRuneInString(text[:start])
	if size > 0 && isWord(before) {
		return true
	}
	after, size := utf8.DecodeRuneInString(text[end:])
	return size > 0 && isWord(after)
}

// isWord is \w in Unicode's sense.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
