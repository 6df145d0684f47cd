package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// normalizer is the normalizer of a tokenizer.json: what is done to a text before it is
// split. It is the steps of a Sequence, flattened.
type normalizer []func(text string) string

func (n normalizer) apply(text string) string {
	for _, step := range n {
		text = step(text)
	}
	return text
}

func newNormalizer(raw json.RawMessage) (normalizer, error) {
	return normalizer(nil).add("normalizer", raw, 0)
}

// add appends the normalizer at path, which may be a Sequence of others.
func (n normalizer) add(path string, raw json.RawMessage, depth int) (normalizer, error) {
	f, err := component(path, raw)
	if f == nil || err != nil {
		return n, err
	}
	switch f.kind {
	case "Sequence":
		for i, part := range f.list("normalizers") {
			if depth == maxNesting {
				return nil, tooDeep(path)
			}
			if n, err = n.add(f.part("normalizers", i), part, depth+1); err != nil {
				return nil, err
			}
		}
	case "Prepend":
		n = append(n, prepend(f.text("prepend", "")))
	case "Replace":
		n = append(n, f.replacement())
	case "NFC":
		n = append(n, composed(norm.NFC))
	case "NFD":
		n = append(n, decomposed(norm.NFD))
	case "NFKC":
		n = append(n, composed(norm.NFKC))
	case "NFKD":
		n = append(n, decomposed(norm.NFKD))
	case "Lowercase":
		n = append(n, lowercase)
	case "Strip":
		n = append(n, strip(f.flag("strip_left", true), f.flag("strip_right", true)))
	default:
		return nil, f.unsupported()
	}
	return n, f.done()
}

func prepend(prefix string) func(string) string {
	return func(text string) string {
		if text == "" {
			return text
		}
		return prefix + text
	}
}

// replacement reads a Replace, which normalizers and decoders share.
func (f *fields) replacement() func(string) string {
	pattern, isRegex := f.pattern("pattern")
	content := f.text("content", "")
	if !isRegex {
		if pattern == "" {
			return func(text string) string { return text }
		}
		return func(text string) string { return strings.ReplaceAll(text, pattern, content) }
	}
	re, err := compileRegex(pattern)
	if err != nil {
		f.fail("pattern.Regex", err)
		return nil
	}
	return func(text string) string { return re.ReplaceAllLiteralString(text, content) }
}

// lowercase maps each character on its own. İ is the only one whose small form is two.
func lowercase(text string) string {
	return strings.Map(unicode.ToLower, strings.ReplaceAll(text, "İ", "i\u0307"))
}

func strip(left, right bool) func(string) string {
	return func(text string) string {
		if left {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		if right {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		}
		return text
	}
}
