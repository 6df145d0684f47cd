package tokenizer

import "unicode/utf8"

// Byte-level vocabularies write each byte as one printable character: those that are
// printable Latin-1 as themselves, the other 68 as U+0100 and onwards in order of the byte.
// This is the alphabet of GPT-2.

func printable(b byte) bool {
	return b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
}

// byteLevelRune is the character that stands for b.
func byteLevelRune(b byte) rune {
	switch {
	case printable(b):
		return rune(b)
	case b <= ' ':
		return 0x100 + rune(b)
	case b == 0xAD:
		return 0x100 + 67
	}
	return 0x100 + 33 + rune(b-0x7F) // 0x7F to 0xA0
}

// byteLevelByte is the byte that r stands for.
func byteLevelByte(r rune) (b byte, ok bool) {
	switch {
	case r < 0x100:
		return byte(r), r >= 0 && printable(byte(r))
	case r <= 0x100+' ':
		return byte(r - 0x100), true
	case r < 0x100+67:
		return byte(r-0x100-33) + 0x7F, true
	case r == 0x100+67:
		return 0xAD, true
	}
	return 0, false
}

func appendByteLevel(out []byte, text string) []byte {
	for i := range len(text) {
		out = utf8.AppendRune(out, byteLevelRune(text[i]))
	}
	return out
}

// byteLevelText is text as a byte-level vocabulary writes it.
func byteLevelText(text string) string {
	return string(appendByteLevel(make([]byte, 0, 2*len(text)), text))
}

// byteLevelBytes turns a token of a byte-level vocabulary back into bytes. A token with a
// character that stands for no byte (an added token such as "<|end▁of▁text|>") is taken as it
// is, whole.
func byteLevelBytes(token string) string {
	var buf [32]byte
	out := buf[:0]
	for _, r := range token {
		b, ok := byteLevelByte(r)
		if !ok {
			return token
		}
		out = append(out, b)
	}
	return string(out)
}
