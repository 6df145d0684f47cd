package constrain

import (
	"fmt"
	"regexp/syntax"
	"unicode/utf8"
)

// pattern appends the inside of a JSON string that a regular expression matches from end to end.
// An expression that is not anchored is taken as if it were: what it matches then is a part of what
// it allows.
func (g *graph) pattern(from int, expression *syntax.Regexp) (to int, err error) {
	return g.match(from, expression, anchors{true, true})
}

// parsePattern reads an expression.
func parsePattern(text string) (*syntax.Regexp, error) {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("RE2 cannot read it: %w", err)
	}
	return re, nil
}

// anchors says whether ^ or $ hold where an expression stands.
type anchors struct{ first, last bool }

func (g *graph) match(from int, re *syntax.Regexp, a anchors) (int, error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return from, nil
	case syntax.OpBeginText, syntax.OpBeginLine:
		if a.first {
			return from, nil
		}
	case syntax.OpEndText, syntax.OpEndLine:
		if a.last {
			return from, nil
		}
	case syntax.OpLiteral:
		return g.runes(from, re), nil
	case syntax.OpCharClass:
		return g.class(from, re.Rune)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return g.class(from, []rune{' ', '~'})
	case syntax.OpCapture:
		return g.match(from, re.Sub[0], a)
	case syntax.OpConcat:
		return g.sequence(from, re.Sub, a)
	case syntax.OpAlternate:
		to := g.vertex()
		for _, sub := range re.Sub {
			end, err := g.match(g.behind(from), sub, a)
			if err != nil {
				return 0, err
			}
			g.skip(end, to)
		}
		return to, nil
	case syntax.OpStar:
		return g.repeat(from, re.Sub[0], 0, -1)
	case syntax.OpPlus:
		return g.repeat(from, re.Sub[0], 1, -1)
	case syntax.OpQuest:
		return g.repeat(from, re.Sub[0], 0, 1)
	case syntax.OpRepeat:
		return g.repeat(from, re.Sub[0], re.Min, re.Max)
	}
	return 0, fmt.Errorf("%q is not supported here", re)
}

// behind is a new vertex that from leads to.
func (g *graph) behind(from int) int {
	v := g.vertex()
	g.skip(from, v)
	return v
}

func (g *graph) sequence(from int, parts []*syntax.Regexp, a anchors) (int, error) {
	last := len(parts) - 1
	for last >= 0 && empty(parts[last]) {
		last--
	}
	begun := false
	for i, sub := range parts {
		var err error
		from, err = g.match(from, sub, anchors{a.first && !begun, a.last && i >= last})
		if err != nil {
			return 0, err
		}
		begun = begun || !empty(sub)
	}
	return from, nil
}

// empty reports whether an expression is an anchor or nothing.
func empty(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine,
		syntax.OpEndLine:
		return true
	case syntax.OpCapture:
		return empty(re.Sub[0])
	}
	return false
}

// repeat appends so many of an expression; most is negative without a bound.
func (g *graph) repeat(from int, sub *syntax.Regexp, least, most int) (int, error) {
	to := g.vertex()
	at := g.behind(from)
	for i := 0; ; i++ {
		if i >= least {
			g.skip(at, to)
		}
		if i == most {
			return to, nil
		}
		end, err := g.match(g.behind(at), sub, anchors{})
		if err != nil {
			return 0, err
		}
		if most < 0 && i >= least {
			g.skip(end, at)
			return to, nil
		}
		at = end
	}
}

// runes appends a text, in all its cases if the expression says so.
func (g *graph) runes(from int, re *syntax.Regexp) int {
	for _, r := range re.Rune {
		to := g.vertex()
		g.rune(from, to, r)
		if re.Flags&syntax.FoldCase != 0 {
			for _, other := range folds(r) {
				g.rune(from, to, other)
			}
		}
		from = to
	}
	return from
}

// rune adds one character of a string in the way that JSON writes it.
func (g *graph) rune(from, to int, r rune) {
	text := quote(string(r))
	g.skip(g.literal(from, text[1:len(text)-1]), to)
}

// maxRunes bounds the characters beyond ASCII that are taken of a class.
const maxRunes = 256

// class appends one character of a class: those of ASCII that can be printed, and the first ones
// beyond it if the class names them one by one.
func (g *graph) class(from int, ranges []rune) (int, error) {
	to, any, beyond := g.vertex(), false, 0
	for i := 0; i < len(ranges); i += 2 {
		low, high := ranges[i], ranges[i+1]
		for r := max(low, ' '); r <= min(high, '~'); r++ {
			any = true
			last := r
			if r != '"' && r != '\\' {
				for last < min(high, '~') && last+1 != '"' && last+1 != '\\' {
					last++
				}
				g.edge(from, to, byte(r), byte(last))
			} else {
				g.rune(from, to, r)
			}
			r = last
		}
		if low < utf8.RuneSelf || high-low > maxRunes {
			continue
		}
		for r := low; r <= high && beyond < maxRunes; r++ {
			if utf8.ValidRune(r) {
				g.rune(from, to, r)
				any, beyond = true, beyond+1
			}
		}
	}
	if !any {
		return 0, fmt.Errorf("it has a class without a character that is written here")
	}
	return to, nil
}
