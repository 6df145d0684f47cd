package access

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/kvrelay/engine/host/openai"
)

// account is the balance of one key or address. The gate's lock guards it.
type account struct {
	limits           Limits
	requests, tokens *rate.Limiter // nil: unlimited
	open             int           // requests being answered
}

// limit sets the limits and keeps what was used already.
func (a *account) limit(l Limits, now time.Time) {
	a.limits = l
	a.requests = perMinute(a.requests, l.RequestsPerMinute, now)
	a.tokens = perMinute(a.tokens, l.TokensPerMinute, now)
}

// perMinute is a bucket that holds a minute's worth and fills in a minute.
func perMinute(old *rate.Limiter, n int, now time.Time) *rate.Limiter {
	if n == 0 {
		return nil
	}
	each := rate.Limit(float64(n) / time.Minute.Seconds())
	if old == nil {
		return rate.NewLimiter(each, n)
	}
	old.SetLimitAt(now, each)
	old.SetBurstAt(now, n)
	return old
}

// idle says that nothing would be lost by forgetting the account.
func (a *account) idle(now time.Time) bool {
	full := func(l *rate.Limiter) bool { return l == nil || left(l, now) >= l.Burst() }
	return a.open == 0 && full(a.requests) && full(a.tokens)
}

// enter counts a request in, or says when to come again.
func (a *account) enter(now time.Time) *openai.Error {
	if most := a.limits.Concurrent; most > 0 && a.open >= most {
		return openai.Errorf(openai.CodeRateLimit, "", "%d requests are being answered already, "+
			"the limit at once (concurrent_requests)", most)
	}
	if wait := take(a.requests, 1, now); wait > 0 {
		e := openai.Errorf(openai.CodeRateLimit, "",
			"the limit of %d requests a minute is reached "+
				"(requests_per_minute); try again in %v", a.limits.RequestsPerMinute, shown(wait))
		e.RetryAfter = wait
		return e
	}
	a.open++
	return nil
}

// spend takes an estimate of tokens, or says when to come again. What is larger than a whole minute
// waits for a full bucket and leaves a debt.
func (a *account) spend(tokens int, now time.Time) *openai.Error {
	if a.tokens == nil {
		return nil
	}
	first := min(tokens, a.tokens.Burst())
	if wait := take(a.tokens, first, now); wait > 0 {
		e := openai.Errorf(openai.CodeRateLimit, "", "the limit of %d tokens a minute is reached "+
			"(tokens_per_minute): this request may need %d, %d are left; try again in %v",
			a.limits.TokensPerMinute, tokens, left(a.tokens, now), shown(wait))
		e.RetryAfter = wait
		return e
	}
	a.adjust(tokens-first, now)
	return nil
}

// adjust takes more tokens, which may leave a debt, or gives some back.
func (a *account) adjust(tokens int, now time.Time) {
	if a.tokens == nil || tokens == 0 {
		return
	}
	for burst := a.tokens.Burst(); tokens > burst; tokens -= burst {
		a.tokens.ReserveN(now, burst)
	}
	a.tokens.ReserveN(now, tokens)
}

// take takes n at once, or says how long it is until they are there.
func take(l *rate.Limiter, n int, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	r := l.ReserveN(now, n)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// left is what can be taken at once.
func left(l *rate.Limiter, now time.Time) int { return max(0, int(l.TokensAt(now))) }

// shown rounds a wait up to what a person reads.
func shown(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// tell writes the headers that clients read their balance from.
func (a *account) tell(h http.Header, now time.Time) {
	write := func(what string, l *rate.Limiter) {
		if l == nil {
			return
		}
		missing := float64(l.Burst()) - l.TokensAt(now)
		reset := time.Duration(max(0, missing) / float64(l.Limit()) * float64(time.Second))
		h.Set("X-RateLimit-Limit-"+what, strconv.Itoa(l.Burst()))
		h.Set("X-RateLimit-Remaining-"+what, strconv.Itoa(left(l, now)))
		h.Set("X-RateLimit-Reset-"+what, fmt.Sprint(shown(reset)))
	}
	write("Requests", a.requests)
	write("Tokens", a.tokens)
}
