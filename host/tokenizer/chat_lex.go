package tokenizer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A chat template is read here as Jinja2 reads it, with the settings of Hugging Face
// transformers: trim_blocks, lstrip_blocks, no newline kept at the end. The library that
// renders it sees text as string literals and tags without white-space control, so that all
// of that is decided in this file.

// Limits on templates, which come with model folders and so from anywhere.
const (
	maxTemplate = 1 << 20 // bytes
	maxBrackets = 100     // brackets inside brackets in a tag
	maxBlocks   = 100     // blocks inside blocks
)

type segmentKind int

const (
	textSegment segmentKind = iota
	outputSegment
	statementSegment
)

// segment is a stretch of text, {{ … }} or {% … %}.
type segment struct {
	kind   segmentKind
	text   string
	tokens []tagToken
	line   int
}

type tagTokenKind int

const (
	nameToken tagTokenKind = iota
	stringToken
	numberToken
	signToken
)

// tagToken is a token inside a tag; a string's text is what it stands for.
type tagToken struct {
	kind tagTokenKind
	text string
}

func (t tagToken) is(sign string) bool    { return t.kind == signToken && t.text == sign }
func (t tagToken) named(name string) bool { return t.kind == nameToken && t.text == name }

// templateLexer cuts a template into segments.
type templateLexer struct {
	src   string
	pos   int
	out   []segment
	atBOL bool // the last tag took the line's end with it, or there was none yet
}

func lexTemplate(source string) ([]segment, error) {
	if len(source) > maxTemplate {
		return nil, fmt.Errorf("it is longer than %d bytes", maxTemplate)
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &templateLexer{src: strings.TrimSuffix(source, "\n"), atBOL: true}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", l.line(l.pos), err)
		}
	}
	return l.out, nil
}

func (l *templateLexer) line(pos int) int {
	return 1 + strings.Count(l.src[:min(pos, len(l.src))], "\n")
}

func (l *templateLexer) text(text string) {
	if text != "" {
		l.out = append(l.out, segment{kind: textSegment, text: text})
	}
}

var rawBegin = regexp.MustCompile(`^\{%[-+]?\s*raw\s*(-?)%\}`)
var rawEnd = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)

// next reads text up to a tag, and the tag.
func (l *templateLexer) next() error {
	rest := l.src[l.pos:]
	start := 0
	for {
		i := strings.IndexByte(rest[start:], '{')
		if i < 0 || start+i+1 >= len(rest) {
			l.text(rest)
			l.pos = len(l.src)
			return nil
		}
		start += i
		if strings.IndexByte("{%#", rest[start+1]) >= 0 {
			break
		}
		start++
	}
	opener, sign := rest[start+1], byte(0)
	if start+2 < len(rest) && (rest[start+2] == '-' || rest[start+2] == '+') {
		sign = rest[start+2]
	}
	l.text(l.stripLeft(rest[:start], sign, opener != '{'))
	l.pos += start
	if m := rawBegin.FindStringSubmatch(rest[start:]); m != nil {
		return l.raw(len(m[0]), m[1])
	}
	l.pos += 2
	if sign != 0 {
		l.pos++
	}
	switch opener {
	case '#':
		return l.comment()
	case '{':
		return l.tag(outputSegment, "}}")
	}
	return l.tag(statementSegment, "%}")
}

// stripLeft takes white space off the end of the text before a tag: all of it before "{%-",
// the indentation before a block that is the first on its line.
func (l *templateLexer) stripLeft(text string, sign byte, block bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isPythonSpace)
	}
	lineStart := strings.LastIndexByte(text, '\n') + 1
	if sign == '+' || !block || lineStart == 0 && !l.atBOL {
		return text
	}
	if strings.TrimLeftFunc(text[lineStart:], isPythonSpace) == "" {
		return text[:lineStart]
	}
	return text
}

// stripRight takes white space off the start of the text behind a tag: all of it behind
// "-%}", one line end behind a block.
func (l *templateLexer) stripRight(sign byte, block bool) {
	start, rest := l.pos, l.src[l.pos:]
	switch {
	case sign == '-':
		l.pos = len(l.src) - len(strings.TrimLeftFunc(rest, isPythonSpace))
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.pos++
	}
	l.atBOL = l.pos > start && l.src[l.pos-1] == '\n'
}

func (l *templateLexer) comment() error {
	i := strings.Index(l.src[l.pos:], "#}")
	if i < 0 {
		return fmt.Errorf("a comment is not closed")
	}
	sign := byte(0)
	if i > 0 {
		sign = l.src[l.pos+i-1]
	}
	l.pos += i + 2
	l.stripRight(sign, true)
	return nil
}

// raw passes on what stands between raw and endraw.
func (l *templateLexer) raw(opening int, sign string) error {
	l.pos += opening
	if sign == "-" {
		l.stripRight('-', true)
	} else {
		l.atBOL = false
	}
	at := rawEnd.FindStringSubmatchIndex(l.src[l.pos:])
	if at == nil {
		return fmt.Errorf("a raw block is not closed")
	}
	part := func(group int) byte {
		if at[2*group] == at[2*group+1] {
			return 0
		}
		return l.src[l.pos+at[2*group]]
	}
	first, last := part(1), part(2)
	l.text(l.stripLeft(l.src[l.pos:l.pos+at[0]], first, true))
	l.pos += at[1]
	l.stripRight(last, true)
	return nil
}

// tag reads the tokens of a tag. Inside brackets its end does not count.
func (l *templateLexer) tag(kind segmentKind, end string) error {
	seg := segment{kind: kind, line: l.line(l.pos)}
	var open []byte
	for {
		rest := strings.TrimLeftFunc(l.src[l.pos:], isPythonSpace)
		l.pos = len(l.src) - len(rest)
		if rest == "" {
			return fmt.Errorf("a tag that began in line %d is not closed", seg.line)
		}
		if sign, size := tagEnd(rest, kind, end); size > 0 && len(open) == 0 {
			l.pos += size
			l.stripRight(sign, kind == statementSegment)
			l.out = append(l.out, seg)
			return nil
		}
		token, size, err := lexTagToken(rest)
		if err != nil {
			return err
		}
		if open, err = brackets(open, token); err != nil {
			return err
		}
		l.pos += size
		seg.tokens = append(seg.tokens, token)
	}
}

// tagEnd returns the size of a tag's end at the start of rest, 0 if there is none, and its
// sign: "-%}", "+%}" or none.
func tagEnd(rest string, kind segmentKind, end string) (sign byte, size int) {
	if strings.HasPrefix(rest, end) {
		return 0, len(end)
	}
	sign = rest[0]
	strips := sign == '-' || sign == '+' && kind == statementSegment
	if strips && strings.HasPrefix(rest[1:], end) {
		return sign, 1 + len(end)
	}
	return 0, 0
}

// brackets keeps the brackets that are open.
func brackets(open []byte, t tagToken) ([]byte, error) {
	if t.kind != signToken {
		return open, nil
	}
	switch i := strings.Index("([{)]}", t.text); {
	case i < 0 || len(t.text) != 1:
		return open, nil
	case i < 3:
		if len(open) == maxBrackets {
			return nil, fmt.Errorf("more than %d brackets in one another", maxBrackets)
		}
		return append(open, t.text[0]), nil
	case len(open) == 0 || open[len(open)-1] != "([{"[i-3]:
		return nil, fmt.Errorf("unexpected %q", t.text)
	}
	return open[:len(open)-1], nil
}

var (
	tagName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)
	tagFloat = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)`)
	tagInt   = regexp.MustCompile(`^(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|` +
		`[0-9](?:_?[0-9])*)`)
	tagString = regexp.MustCompile(`(?s)^(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`)
	tagSign   = regexp.MustCompile(`^(?:\*\*|//|==|!=|<=|>=|[-+*/%~<>=.:|,()\[\]{}])`)
)

// lexTagToken reads one token at the start of rest.
func lexTagToken(rest string) (t tagToken, size int, err error) {
	if m := tagName.FindString(rest); m != "" {
		return tagToken{nameToken, m}, len(m), nil
	}
	if m := tagFloat.FindString(rest); m != "" {
		f, err := strconv.ParseFloat(m, 64)
		text := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return tagToken{numberToken, text}, len(m), err
	}
	if m := tagInt.FindString(rest); m != "" {
		n, err := strconv.ParseInt(m, pythonBase(m), 64)
		return tagToken{numberToken, strconv.FormatInt(n, 10)}, len(m), err
	}
	if m := tagString.FindString(rest); m != "" {
		return tagToken{stringToken, unescapePython(m[1 : len(m)-1])}, len(m), nil
	}
	if m := tagSign.FindString(rest); m != "" {
		return tagToken{signToken, m}, len(m), nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return t, 0, fmt.Errorf("unexpected character %q", r)
}

// pythonBase is 0, which follows the prefix, but for numbers such as 007, which are decimal.
func pythonBase(number string) int {
	if len(number) > 1 && number[0] == '0' && number[1] >= '0' && number[1] <= '9' {
		return 10
	}
	return 0
}

// unescapePython reads the escapes of a string literal; one that Python does not know stays.
func unescapePython(s string) string {
	const plain, meant = `\'"abfnrtv`, "\\'\"\a\b\f\n\r\t\v"
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(plain, s[i]); at >= 0 {
			out.WriteByte(meant[at])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		if digits > 0 && i+digits < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32); err == nil {
				out.WriteRune(rune(n))
				i += digits
				continue
			}
		}
		if s[i] != '\n' { // a backslash at the end of a line joins it with the next
			out.WriteByte('\\')
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
