package bench

import (
	"math"
	"time"
)

// steady is the rate while all answers are under way, and how long they were; 0 where some failed
// or they never were.
func steady(answers []Answer) (rate float64, window time.Duration) {
	from, to := time.Duration(0), time.Duration(math.MaxInt64)
	for _, a := range answers {
		if !a.whole() {
			return 0, 0
		}
		from, to = max(from, a.Began+a.First), min(to, a.last())
	}
	return rateWithin(answers, from, to)
}

// whole is the rate from the first end of an answer to the first end after the last one began, and
// how long that was: between the two, each answer that ended was followed by another.
func whole(answers []Answer) (rate float64, window time.Duration) {
	begun, from, to := time.Duration(0), time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, a := range answers {
		if !a.whole() {
			return 0, 0
		}
		begun, from = max(begun, a.Began), min(from, a.last())
	}
	for _, a := range answers {
		if a.last() >= begun {
			to = min(to, a.last())
		}
	}
	return rateWithin(answers, from, to)
}

// whole: the answer came to its own end.
func (a Answer) whole() bool { return a.Err == nil && !a.HungUp }

// last is when the last piece of text came, in the time of the run.
func (a Answer) last() time.Duration {
	end := a.Began + a.First
	for _, g := range a.Gaps {
		end += g
	}
	return end
}

// rateWithin counts the tokens whose text came after from and up to to. The tokens of an answer are
// spread evenly over its pieces of text.
func rateWithin(answers []Answer, from, to time.Duration) (float64, time.Duration) {
	if len(answers) == 0 || to <= from {
		return 0, 0
	}
	tokens := 0.0
	for _, a := range answers {
		share, at := float64(a.Out)/float64(len(a.Gaps)+1), a.Began+a.First
		if at > from && at <= to {
			tokens += share
		}
		for _, g := range a.Gaps {
			if at += g; at > from && at <= to {
				tokens += share
			}
		}
	}
	return tokens / (to - from).Seconds(), to - from
}
