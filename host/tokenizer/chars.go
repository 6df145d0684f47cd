package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// charClass is what the word patterns of tokenizers tell apart.
type charClass uint8

const (
	other   charClass = iota
	letter            // \p{L}
	number            // \p{N}
	space             // \s without the two below
	newline           // \r and \n, which are \s too
)

// charClasses holds the class of every character of the basic plane; those above are looked
// up in the standard tables.
type charClasses [1 << 16]charClass

func newCharClasses() *charClasses {
	c := new(charClasses)
	c.fill(unicode.L, letter)
	c.fill(unicode.N, number)
	c.fill(unicode.White_Space, space)
	c['\r'], c['\n'] = newline, newline
	return c
}

func (c *charClasses) fill(table *unicode.RangeTable, class charClass) {
	for _, r := range table.R16 {
		for char := uint32(r.Lo); char <= uint32(r.Hi); char += uint32(r.Stride) {
			c[char] = class
		}
	}
}

// at returns the class and size of the character at text[i:]; past the end it is other, 0.
func (c *charClasses) at(text string, i int) (charClass, int) {
	if i >= len(text) {
		return other, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return c[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	switch {
	case r < 1<<16:
		return c[r], size
	case unicode.Is(unicode.L, r):
		return letter, size
	case unicode.Is(unicode.N, r):
		return number, size
	}
	return other, size
}

// skip returns the end of the run of characters of a class that begins at text[i:].
func (c *charClasses) skip(text string, i int, class charClass) int {
	for i < len(text) {
		got, size := c.at(text, i)
		if got != class {
			break
		}
		i += size
	}
	return i
}

// blank returns the end of the run of \s at text[i:], where its last character begins, and
// the end of its last \r or \n (i if there is none).
func (c *charClasses) blank(text string, i int) (end, last, newlines int) {
	end, last, newlines = i, i, i
	for end < len(text) {
		got, size := c.at(text, end)
		if got != space && got != newline {
			break
		}
		last = end
		end += size
		if got == newline {
			newlines = end
		}
	}
	return end, last, newlines
}

// spaces is the end of what `\s+(?!\S)|\s+` matches at text[i:], which begins with \s: all of
// the run, but for its last character if a word follows and it is not the only one.
func (c *charClasses) spaces(text string, i int) int {
	end, last, _ := c.blank(text, i)
	if end < len(text) && last > i {
		return last
	}
	return end
}
