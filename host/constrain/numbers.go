package constrain

import (
	"math/big"
	"strconv"
	"strings"
)

// Digits of numbers without bounds of their own: what a double holds exactly.
const (
	wholeDigits    = 15
	fractionDigits = 6
)

// plain appends a number without bounds, with or without a fraction.
func (g *graph) plain(from int, fraction bool) int {
	to, digit := g.vertex(), g.vertex()
	g.edge(from, digit, '-', '-')
	g.skip(from, digit)
	whole := g.vertex() // All whole digits that come are there.
	g.edge(digit, whole, '0', '0')
	at := g.vertex()
	g.edge(digit, at, '1', '9')
	g.skip(at, whole)
	for range wholeDigits - 1 {
		next := g.vertex()
		g.edge(at, next, '0', '9')
		g.skip(next, whole)
		at = next
	}
	g.skip(whole, to)
	if !fraction {
		return to
	}
	at = g.literal(whole, ".")
	for range fractionDigits {
		next := g.vertex()
		g.edge(at, next, '0', '9')
		g.skip(next, to)
		at = next
	}
	return to
}

// span are the bounds of a number; nil is none, open leaves the bound itself out.
type span struct {
	low, high         *big.Rat
	lowOpen, highOpen bool
	integer           bool
	decimals          int // that the bounds have
}

// power is 10 to the n.
func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// fill gives a span the bounds it lacks, and brings far ones in where the other allows it.
func (s *span) fill() {
	edge := new(big.Rat).SetInt(new(big.Int).Sub(power(wholeDigits), big.NewInt(1)))
	negative := new(big.Rat).Neg(edge)
	reach := new(big.Rat).SetInt(power(wholeDigits))
	if s.high == nil || s.high.Cmp(edge) > 0 && (s.low == nil || s.low.Cmp(edge) < 0) {
		s.high, s.highOpen = edge, false
		if s.low != nil && s.low.Cmp(edge) >= 0 {
			s.high = new(big.Rat).Add(s.low, reach)
		}
	}
	if s.low == nil || s.low.Cmp(negative) < 0 && s.high.Cmp(negative) > 0 {
		s.low, s.lowOpen = negative, false
		if s.high.Cmp(negative) <= 0 {
			s.low = new(big.Rat).Sub(s.high, reach)
		}
	}
}

// scaled is the range of the integers k for which k/10^decimals is inside.
func (s *span) scaled(decimals int) (low, high *big.Int) {
	scale := new(big.Rat).SetInt(power(decimals))
	low, exact := floor(new(big.Rat).Mul(s.low, scale))
	if !exact || s.lowOpen {
		low.Add(low, big.NewInt(1))
	}
	high, exact = floor(new(big.Rat).Mul(s.high, scale))
	if exact && s.highOpen {
		high.Sub(high, big.NewInt(1))
	}
	return low, high
}

func floor(r *big.Rat) (n *big.Int, exact bool) {
	n = new(big.Int)
	n.Div(r.Num(), r.Denom()) // Euclidean, and denominators are positive.
	return n, r.IsInt()
}

// within appends a number inside a span. It reports false when there is none.
func (g *graph) within(from int, s span) (to int, ok bool) {
	s.fill()
	most := 0
	if !s.integer {
		most = min(max(s.decimals+1, 2), 2*fractionDigits)
	}
	to = g.vertex()
	minus := -1
	for decimals := 0; decimals <= most; decimals++ {
		low, high := s.scaled(decimals)
		if low.Cmp(high) > 0 {
			continue
		}
		ok = true
		if low.Sign() < 0 {
			if minus < 0 {
				minus = g.literal(from, "-")
			}
			last := big.NewInt(-1)
			if high.Sign() < 0 {
				last = high
			}
			g.digits(minus, to, magnitudes{new(big.Int).Neg(last), new(big.Int).Neg(low), decimals})
		}
		if high.Sign() >= 0 {
			first := low
			if low.Sign() < 0 {
				first = new(big.Int)
			}
			g.digits(from, to, magnitudes{first, high, decimals})
		}
	}
	return to, ok
}

// magnitudes are the numbers k/10^decimals with low <= k <= high, not negative.
type magnitudes struct {
	low, high *big.Int
	decimals  int
}

// digits adds all ways to write a magnitude with exactly that many decimals.
func (g *graph) digits(from, to int, m magnitudes) {
	for n := m.decimals + 1; ; n++ {
		first, last := power(n-1), new(big.Int).Sub(power(n), big.NewInt(1))
		if n == m.decimals+1 {
			first.SetInt64(0)
		}
		if first.Cmp(m.high) > 0 {
			return
		}
		if first.Cmp(m.low) < 0 {
			first = m.low
		}
		if last.Cmp(m.high) > 0 {
			last = m.high
		}
		if first.Cmp(last) > 0 {
			continue
		}
		pad := func(x *big.Int) string {
			s := x.String()
			return strings.Repeat("0", n-len(s)) + s
		}
		f := fixed{g: g, to: to, low: pad(first), high: pad(last), whole: n - m.decimals,
			made: map[fixedPlace]int{}}
		f.from(fixedPlace{0, true, true}, from)
	}
}

// fixed writes the numbers between two of equal length, with a point after whole digits.
type fixed struct {
	g         *graph
	to        int
	low, high string
	whole     int
	made      map[fixedPlace]int
}

// fixedPlace is how many digits are written, and whether they are those of the bounds.
type fixedPlace struct {
	at            int
	onLow, onHigh bool
}

// from adds the digits that may come at a place, from a vertex.
func (f *fixed) from(p fixedPlace, v int) {
	if p.at == f.whole && p.at < len(f.low) {
		v = f.g.literal(v, ".")
	}
	low, high := byte('0'), byte('9')
	if p.onLow {
		low = f.low[p.at]
	}
	if p.onHigh {
		high = f.high[p.at]
	}
	for c := low; c <= high; c++ {
		next := fixedPlace{p.at + 1, p.onLow && c == low, p.onHigh && c == high}
		last := c
		if !next.onLow && !next.onHigh { // All up to the upper bound's digit go the same way.
			last = high
			if p.onHigh {
				last = high - 1
			}
		}
		f.g.edge(v, f.place(next), c, last)
		c = last
	}
}

func (f *fixed) place(p fixedPlace) int {
	if p.at == len(f.low) {
		return f.to
	}
	v, known := f.made[p]
	if !known {
		v = f.g.vertex()
		f.made[p] = v
		f.from(p, v)
	}
	return v
}

// bound reads the number of a keyword. Far exponents are refused: they would take room.
func bound(raw string) (r *big.Rat, decimals int, ok bool) {
	mantissa, exponent, has := strings.Cut(strings.ToLower(raw), "e")
	shift := 0
	if has {
		n, err := strconv.Atoi(exponent)
		if err != nil || n > 2*wholeDigits || n < -2*fractionDigits {
			return nil, 0, false
		}
		shift = n
	}
	if len(mantissa) > 3*wholeDigits {
		return nil, 0, false
	}
	r, ok = new(big.Rat).SetString(raw)
	_, fraction, _ := strings.Cut(mantissa, ".")
	return r, max(len(strings.TrimRight(fraction, "0"))-shift, 0), ok
}
