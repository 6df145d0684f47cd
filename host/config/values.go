package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Auto is a setting that may say "auto": the engine then chooses, and `config show` prints what it
// chose. The zero value is auto.
type Auto[T any] struct {
	Set   bool
	Value T
}

// To is a setting that says v.
func To[T any](v T) Auto[T] { return Auto[T]{Set: true, Value: v} }

// Or is the value that was set, else chosen.
func (a Auto[T]) Or(chosen T) T {
	if a.Set {
		return a.Value
	}
	return chosen
}

// Size is a number of bytes.
type Size int64

// Rate is a number of bytes a second; 0 is unlimited.
type Rate int64

// unit is a suffix and what it multiplies by.
type unit struct {
	name  string
	scale int64
}

// sizeUnits and durationUnits are what a value may end in, the largest first.
var (
	sizeUnits = []unit{
		{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
		{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
	}
	durationUnits = []unit{
		{"h", int64(time.Hour)}, {"m", int64(time.Minute)}, {"s", int64(time.Second)},
		{"ms", int64(time.Millisecond)}, {"us", int64(time.Microsecond)},
		{"µs", int64(time.Microsecond)}, {"ns", 1},
	}
)

// parseDuration reads a number and one unit, or several as in "1m30s".
func parseDuration(s string) (time.Duration, bool) {
	if s == "" || strings.ContainsAny(s, " \t") {
		return 0, false
	}
	if s[len(s)-1] >= '0' && s[len(s)-1] <= '9' {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// parseSize reads "512MiB"; a space before the unit is allowed by nobody and so not here.
func parseSize(s string) (Size, bool) {
	n, ok := parseUnit(s, sizeUnits)
	return Size(n), ok
}

// parseRate reads "100MiB/s" or "unlimited".
func parseRate(s string) (Rate, bool) {
	if s == "unlimited" {
		return 0, true
	}
	head, ok := strings.CutSuffix(s, "/s")
	if !ok {
		return 0, false
	}
	n, ok := parseUnit(head, sizeUnits)
	return Rate(n), ok && n > 0
}

// parseUnit reads a decimal number and one of units. The product must be whole within rounding and
// fit an int64.
func parseUnit(s string, units []unit) (int64, bool) {
	digits := strings.TrimLeft(s, "0123456789.")
	number, name := s[:len(s)-len(digits)], digits
	for _, u := range units {
		if name != u.name {
			continue
		}
		f, err := strconv.ParseFloat(number, 64)
		product := math.Round(f * float64(u.scale))
		if err != nil || product >= math.MaxInt64 {
			return 0, false
		}
		return int64(product), true
	}
	return 0, false
}

// formatSize writes the largest binary unit that divides n.
func formatSize(n int64) string {
	for _, u := range sizeUnits[:4] {
		if n != 0 && n%u.scale == 0 {
			return fmt.Sprint(n/u.scale) + u.name
		}
	}
	return fmt.Sprint(n) + "B"
}

// formatDuration writes one unit where one does.
func formatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	for _, u := range durationUnits {
		if u.name != "µs" && int64(d)%u.scale == 0 {
			return fmt.Sprint(int64(d)/u.scale) + u.name
		}
	}
	return d.String()
}

// unitWords are spellings that people write out, and the unit that is meant.
var unitWords = map[string]string{
	"seconds": "s", "second": "s", "secs": "s", "sec": "s",
	"minutes": "m", "minute": "m", "mins": "m", "min": "m",
	"hours": "h", "hour": "h", "hrs": "h", "hr": "h",
	"milliseconds": "ms", "millisecond": "ms", "msec": "ms", "millis": "ms",
	"microseconds": "us", "microsecond": "us", "usec": "us",
	"gibibytes": "GiB", "gigabytes": "GB", "gib": "GiB", "gb": "GB", "g": "GiB", "gi": "GiB",
	"mebibytes": "MiB", "megabytes": "MB", "mib": "MiB", "mb": "MB", "m": "MiB", "mi": "MiB",
	"kibibytes": "KiB", "kilobytes": "KB", "kib": "KiB", "kb": "KB", "k": "KiB", "ki": "KiB",
	"tib": "TiB", "tb": "TB", "t": "TiB", "ti": "TiB",
	"bytes": "B", "byte": "B", "b": "B",
}

// rewriteUnit guesses what a value with a mistaken unit means: "20 seconds" is "20s". It returns
// "" when there is no telling; valid says whether the guess would be taken.
func rewriteUnit(s, suffix string, valid func(string) bool) string {
	bare := strings.TrimSuffix(strings.TrimSpace(s), "/s")
	name := strings.TrimLeft(bare, "0123456789.")
	number := bare[:len(bare)-len(name)]
	name = strings.ToLower(strings.TrimSpace(name))
	if number == "" {
		return ""
	}
	for _, guess := range []string{name, unitWords[name]} {
		if guess != "" && valid(number+guess+suffix) {
			return number + guess + suffix
		}
	}
	return ""
}
