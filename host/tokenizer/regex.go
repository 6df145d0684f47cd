package tokenizer

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// blankTail is how word patterns end: white space goes with the word behind it, but for its
// last character. It is the one place where they look ahead.
const blankTail = `|\s+(?!\S)|\s+`

// whiteSpace lists the characters of \s as the inside of a class. In the dialect of
// tokenizer.json \s is Unicode's; in the regexp package it is ASCII's.
const whiteSpace = `\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}` +
	`\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}`

// regexFinder runs a pattern that has no matcher of its own through the regexp package.
type regexFinder struct {
	re *regexp.Regexp
	// tail says that the pattern ended in blankTail, and that re's last group has matched
	// if that is what the match is.
	tail  bool
	chars *charClasses
}

// newRegexFinder compiles a pattern in the dialect of tokenizer.json (Oniguruma's, Ruby
// syntax). What the regexp package does not have or would understand differently is refused.
func newRegexFinder(pattern string, chars *charClasses) (finder, error) {
	refuse := func(why error) error { return refusedPattern(pattern, why) }
	body, tail := strings.CutSuffix(pattern, blankTail)
	translated, err := translate(body)
	if err != nil {
		return nil, refuse(err)
	}
	if tail {
		translated = `(?:` + translated + `)|([` + whiteSpace + `]+)`
	}
	tree, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		return nil, refuse(err)
	}
	if looksAround(tree) {
		return nil, refuse(errors.New("it looks at what is around the match"))
	}
	re, err := regexp.Compile(translated)
	if err != nil {
		return nil, refuse(err)
	}
	if re.MatchString("") {
		return nil, refuse(errors.New("it matches nothing at all"))
	}
	return &regexFinder{re, tail, chars}, nil
}

func refusedPattern(pattern string, why error) error {
	return fmt.Errorf("the pattern %q is %w: %w", pattern, ErrUnsupported, why)
}

// compileRegex compiles a pattern for replacing, where the whole text is looked at at once.
func compileRegex(pattern string) (*regexp.Regexp, error) {
	translated, err := translate(pattern)
	if err != nil {
		return nil, refusedPattern(pattern, err)
	}
	re, err := regexp.Compile(translated)
	if err != nil {
		return nil, refusedPattern(pattern, err)
	}
	return re, nil
}

func (f *regexFinder) find(text string, pos int) (start, end int) {
	if !f.tail {
		at := f.re.FindStringIndex(text[pos:])
		if at == nil {
			return -1, 0
		}
		return pos + at[0], pos + at[1]
	}
	at := f.re.FindStringSubmatchIndex(text[pos:])
	if at == nil {
		return -1, 0
	}
	if at[len(at)-2] >= 0 {
		return pos + at[0], f.chars.spaces(text, pos+at[0])
	}
	return pos + at[0], pos + at[1]
}

// looksAround reports assertions such as ^, $ and \b. A match is looked for in what is left
// of the text, so they would see an edge where there is none.
func looksAround(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	for _, sub := range re.Sub {
		if looksAround(sub) {
			return true
		}
	}
	return false
}

// translate rewrites a pattern into the regexp package's dialect.
func translate(pattern string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		if rest[0] == '\\' {
			if len(rest) == 1 {
				return "", errors.New("it ends in a backslash")
			}
			escape, err := translateEscape(rest[1], inClass)
			if err != nil {
				return "", err
			}
			out.WriteString(escape)
			i++
			continue
		}
		switch {
		case inClass && (rest[0] == '[' || strings.HasPrefix(rest, "&&")):
			return "", errors.New("it has a class inside a class")
		case rest[0] == '[':
			inClass = true
		case inClass && rest[0] == ']':
			inClass = false
		case !inClass && strings.HasPrefix(rest, "{,"):
			return "", errors.New("it has a repetition without a lower bound")
		case !inClass && strings.HasPrefix(rest, "(?") && !plainGroup(rest[2:]):
			return "", fmt.Errorf("it has the group %q", clip([]byte(rest[:min(4, len(rest))])))
		}
		out.WriteByte(rest[0])
	}
	return out.String(), nil
}

// plainGroup reports the groups that mean the same in both dialects.
func plainGroup(afterMark string) bool {
	return strings.HasPrefix(afterMark, ":") || strings.HasPrefix(afterMark, "i:") ||
		strings.HasPrefix(afterMark, "i)")
}

func translateEscape(c byte, inClass bool) (string, error) {
	switch {
	case c == 's' && inClass:
		return whiteSpace, nil
	case c == 's':
		return "[" + whiteSpace + "]", nil
	case c == 'S' && !inClass:
		return "[^" + whiteSpace + "]", nil
	case c == 'd':
		return `\p{Nd}`, nil
	case c == 'D':
		return `\P{Nd}`, nil
	case strings.IndexByte("pPrntfvx", c) >= 0, c < 0x80 && !isWordByte(c):
		return `\` + string(rune(c)), nil
	}
	return "", fmt.Errorf(`it has the escape \%c`, c)
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_'
}
