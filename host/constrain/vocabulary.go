package constrain

import (
	"bytes"
	"slices"
)

// Vocabulary is what the tokens of a model write, in an order that lets an automaton run over all
// of them in one pass. It never changes.
type Vocabulary struct {
	size  int // one more than the largest token
	texts [][]byte
	words []word
	known map[string]bool
	// longest is the longest word that is in known.
	longest int
	widest  int       // bytes of the longest word of all
	single  [256]bool // bytes that have a token of their own
}

// word is a token and its bytes; shared is how many bytes it has in common with the word before.
type word struct {
	id     int32
	shared int
	text   []byte
}

// maxCover bounds the words that are looked for in literals; longer ones are rare.
const maxCover = 64

// NewVocabulary makes the vocabulary of tokens [0, size). text gives what a token writes; tokens
// that write nothing (special ones too) are never allowed by a mask.
func NewVocabulary(size int, text func(id int32) []byte) *Vocabulary {
	v := &Vocabulary{size: size, texts: make([][]byte, size), known: map[string]bool{}}
	for id := range int32(size) {
		t := text(id)
		if len(t) == 0 {
			continue
		}
		v.texts[id] = t
		v.widest = max(v.widest, len(t))
		v.words = append(v.words, word{id: id, text: t})
		if len(t) <= maxCover {
			v.known[string(t)] = true
			v.longest = max(v.longest, len(t))
		}
		if len(t) == 1 {
			v.single[t[0]] = true
		}
	}
	slices.SortFunc(v.words, func(a, b word) int {
		if c := bytes.Compare(a.text, b.text); c != 0 {
			return c
		}
		return int(a.id - b.id)
	})
	for i := 1; i < len(v.words); i++ {
		v.words[i].shared = common(v.words[i-1].text, v.words[i].text)
	}
	return v
}

// common is how many bytes two words begin with alike.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// writes reports whether some token is one byte of [low, high].
func (v *Vocabulary) writes(low, high byte) bool {
	for b := int(low); b <= int(high); b++ {
		if v.single[b] {
			return true
		}
	}
	return false
}

// text is what a token writes; nothing for tokens outside the vocabulary.
func (v *Vocabulary) text(id int32) []byte {
	if id < 0 || int(id) >= len(v.texts) {
		return nil
	}
	return v.texts[id]
}
