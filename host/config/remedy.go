package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A remedy is what a report tells to write instead. It is only named where it would be taken:
// somebody who follows it must not be refused again.

// accepts says whether the row takes a decoded value. One of another type is not even tried: its
// refusal would look for a remedy again.
func (r *row) accepts(value any) bool {
	c := &Config{}
	field, auto := r.field(c)
	if auto {
		field = field.FieldByName("Value")
	}
	fits := false
	switch k := kindOf(field.Type()); v := value.(type) {
	case int64:
		fits = k == kindNumber || k == kindFraction
	case float64:
		fits = k == kindFraction && !math.IsNaN(v) && !math.IsInf(v, 0)
	case string:
		if fits = k == kindText; k == kindDuration || k == kindSize || k == kindRate {
			_, fits = parseKind(k, v)
		}
	}
	return fits && r.assign(c, value) == nil
}

// bareNumberLabel shows the two likeliest units of a number without one; it is never guessed at.
func (r *row) bareNumberLabel(k kind, value any) string {
	switch value.(type) {
	case int64, float64:
	default:
		return r.sampleLabel(k)
	}
	units := map[kind][2]struct{ unit, words string }{
		kindDuration: {{"s", " for %s seconds"}, {"ms", " for milliseconds"}},
		kindSize:     {{"MiB", " for %s mebibytes"}, {"B", " for bytes"}},
		kindRate:     {{"MiB/s", " for %s mebibytes a second"}, {"B/s", " for bytes"}},
	}[k]
	n := fmt.Sprint(value)
	var list []string
	for _, u := range units {
		if r.accepts(n + u.unit) {
			list = append(list, strconv.Quote(n+u.unit)+strings.ReplaceAll(u.words, "%s", n))
		}
	}
	if list == nil {
		return r.sampleLabel(k)
	}
	return "write " + strings.Join(list, ", ")
}

// kindSamples show how a value of each kind is written.
var kindSamples = map[kind][]string{
	kindDuration: {"250ms", "30s", "5m"}, kindSize: {"512MiB", "4GiB"}, kindRate: {"100MiB/s"},
}

// sampleLabel shows values that the row takes, of those that show best how they are written.
func (r *row) sampleLabel(k kind) string {
	var list []string
	for _, sample := range kindSamples[k] {
		if r.accepts(sample) {
			list = append(list, strconv.Quote(sample))
		}
	}
	if list == nil && r.def != `"auto"` {
		list = append(list, r.def)
	}
	label := "write a number and a unit: " + strings.Join(list, ", ")
	if k == kindRate && r.accepts("unlimited") {
		label += `, or "unlimited"`
	}
	return label
}

// unitLabel rewrites what can be told.
func (r *row) unitLabel(k kind, s string) string {
	suffix := ""
	if k == kindRate {
		suffix = "/s"
	}
	valid := func(guess string) bool { return r.accepts(guess) }
	if guess := rewriteUnit(s, suffix, valid); guess != "" {
		return fmt.Sprintf("write %q", guess)
	}
	if number, err := strconv.ParseFloat(s, 64); err == nil {
		return r.bareNumberLabel(k, number)
	}
	return r.sampleLabel(k)
}

// notNumber explains what stands where a number must.
func (r *row) notNumber(value any, whole bool) *wrong {
	message := r.name() + " must be a number"
	if _, fraction := value.(float64); fraction && whole {
		message = r.name() + " must be a whole number"
	}
	label := "write a number, such as " + r.numberSample()
	switch v := value.(type) {
	case string:
		if n, ok := number(v, whole); ok && r.accepts(n) {
			label = "remove the quotes: " + v
		} else if v == "auto" {
			label = `"auto" is not offered here; the default is ` + r.def
		}
	case float64:
		if near := r.wholeNeighbours(v); near != "" {
			label = "write " + near
		}
	}
	if r.def == `"auto"` {
		message += ` or "auto"`
	}
	return refuse(codeType, message, label)
}

// number reads a number that stands in quotes, as TOML would read it without them.
func number(s string, whole bool) (any, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !whole && strings.ContainsAny(s, ".eE")
}

// wholeNeighbours are the whole numbers around one that is none, as far as the row takes them.
func (r *row) wholeNeighbours(v float64) string {
	if !(math.Abs(v) < 1e15) {
		return ""
	}
	var list []string
	for _, n := range []int64{int64(math.Floor(v)), int64(math.Ceil(v))} {
		text := fmt.Sprint(n)
		if r.accepts(n) && (len(list) == 0 || list[0] != text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, " or ")
}

// numberSample is a number that the row takes, its default where that is one.
func (r *row) numberSample() string {
	if r.def != `"auto"` {
		return r.def
	}
	for _, n := range []any{int64(4), 0.5, int64(1)} {
		if r.accepts(n) {
			return fmt.Sprint(n)
		}
	}
	return r.least
}
