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
	c.fill(newLetters, letter)
	c.fill(unicode.White_Space, space)
	c['\r'], c['\n'] = newline, newline
	return c
}

// newLetters and newNumbers are those of Unicode 16 that the standard tables, of Unicode 15,
// do not have yet. The reference has them.
var (
	newLetters = &unicode.RangeTable{
		R16: []unicode.Range16{{0x1C89, 0x1C8A, 1}, {0xA7CB, 0xA7CD, 1}, {0xA7DA, 0xA7DC, 1}},
		R32: []unicode.Range32{
			{0x105C0, 0x105F3, 1}, {0x10D4A, 0x10D65, 1}, {0x10D6F, 0x10D85, 1},
			{0x10EC2, 0x10EC4, 1}, {0x11380, 0x11389, 1}, {0x1138B, 0x1138B, 1},
			{0x1138E, 0x1138E, 1}, {0x11390, 0x113B5, 1}, {0x113B7, 0x113B7, 1},
			{0x113D1, 0x113D1, 1}, {0x113D3, 0x113D3, 1}, {0x11BC0, 0x11BE0, 1},
			{0x13460, 0x143FA, 1}, {0x16100, 0x1611D, 1}, {0x16D40, 0x16D6C, 1},
			{0x18CFF, 0x18CFF, 1}, {0x1E5D0, 0x1E5ED, 1}, {0x1E5F0, 0x1E5F0, 1},
			{0x2EBF0, 0x2EE5D, 1},
		},
	}
	newNumbers = &unicode.RangeTable{R32: []unicode.Range32{
		{0x10D40, 0x10D49, 1}, {0x116D0, 0x116E3, 1}, {0x11BF0, 0x11BF9, 1},
		{0x16130, 0x16139, 1}, {0x16D70, 0x16D79, 1}, {0x1CCF0, 0x1CCF9, 1},
		{0x1E5F1, 0x1E5FA, 1},
	}}
)

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
	case unicode.In(r, unicode.L, newLetters):
		return letter, size
	case unicode.In(r, unicode.N, newNumbers):
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
