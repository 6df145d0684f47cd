package openai

import (
	"math"
	"strconv"
	"strings"
)

// text reads a string of at most so many bytes.
func (v value) text(to *string, most int) *Error {
	if v.raw[0] != '"' {
		return v.wrong("a string")
	}
	s := v.unquote()
	if len(s) > most {
		return v.invalid("has %d bytes; at most %d are allowed", len(s), most)
	}
	*to = s
	return nil
}

// boolean reads true or false.
func (v value) boolean(to *bool) *Error {
	if v.raw != "true" && v.raw != "false" {
		return v.wrong("a boolean")
	}
	*to = v.raw == "true"
	return nil
}

// number reads a number in [low, high].
func (v value) number(to **float64, low, high float64) *Error {
	if v.kind() != "a number" {
		return v.wrong("a number")
	}
	x, err := strconv.ParseFloat(v.raw, 64)
	if err != nil || x < low || x > high {
		return v.invalid("is %.40s; it must be from %v to %v", v.raw, low, high)
	}
	*to = &x
	return nil
}

// integer reads an integer in [low, high].
func (v value) integer(low, high int64) (int64, *Error) {
	if v.kind() != "a number" {
		return 0, v.wrong("an integer")
	}
	if strings.ContainsAny(v.raw, ".eE") {
		return 0, Errorf(CodeInvalidType, v.path, "%s must be an integer, not %.40s (byte %d)",
			v.title(), v.raw, v.at)
	}
	n, err := strconv.ParseInt(v.raw, 10, 64)
	if err != nil || n < low || n > high {
		if high == math.MaxInt64 && low > math.MinInt64 && err == nil {
			return 0, v.invalid("is %d; it must be at least %d", n, low)
		}
		return 0, v.invalid("is %.40s; it must be from %d to %d", v.raw, low, high)
	}
	return n, nil
}

// count reads an integer of at least low.
func (v value) count(to **int, low int) *Error {
	n, err := v.integer(int64(low), math.MaxInt32)
	if err != nil {
		return err
	}
	i := int(n)
	*to = &i
	return nil
}

// offset reads a position in the prompt; a negative one counts from its end.
func (v value) offset(to *int) *Error {
	n, err := v.integer(math.MinInt32, math.MaxInt32)
	*to = int(n)
	return err
}
