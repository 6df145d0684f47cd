package constrain

import (
	"math"
	"regexp/syntax"
	"unicode"
)

// folds are the other cases of a letter.
func folds(r rune) []rune {
	var all []rune
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other < unicode.MaxASCII || r > unicode.MaxASCII {
			all = append(all, other)
		}
	}
	return all
}

// lengths is how few and how many characters an expression matches; most is math.MaxInt without
// a bound.
func lengths(re *syntax.Regexp) (least, most int) {
	times := func(n, times int) int {
		if n == 0 || times == 0 {
			return 0
		}
		if n == math.MaxInt || times < 0 || n > math.MaxInt/times {
			return math.MaxInt
		}
		return n * times
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpCapture:
		return lengths(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		low, high := lengths(re.Sub[0])
		switch re.Op {
		case syntax.OpStar:
			return 0, times(high, -1)
		case syntax.OpPlus:
			return low, times(high, -1)
		case syntax.OpQuest:
			return 0, high
		}
		return times(low, re.Min), times(high, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			low, high := lengths(sub)
			least += low
			if most = most + high; most < high || high == math.MaxInt {
				most = math.MaxInt
			}
		}
	case syntax.OpAlternate:
		least = math.MaxInt
		for _, sub := range re.Sub {
			low, high := lengths(sub)
			least, most = min(least, low), max(most, high)
		}
	}
	return least, most
}
