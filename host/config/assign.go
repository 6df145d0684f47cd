package config

import (
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The codes of refused values.
const (
	codeType  = "E110" // of another type
	codeUnit  = "E111" // a duration, size or rate without a unit, or with an unknown one
	codeRange = "E120" // beyond the bounds
	codePower = "E121" // not a power of two
	codeWord  = "E130" // not one of the words
	codeForm  = "E131" // not an address, a network, a name, …
)

// wrong says why a value was refused. Item is the element of a list that is at fault.
type wrong struct {
	code, message, label string
	help                 []string
	item                 int
}

// wholeValue is wrong.item when the fault is not in one element.
const wholeValue = math.MaxInt

// refuse makes a wrong about the whole value.
func refuse(code, message, label string) *wrong {
	return &wrong{code: code, message: message, label: label, item: wholeValue}
}

// assign checks a decoded value and stores it in its field. Nothing is stored on an error.
func (r *row) assign(c *Config, value any) *wrong {
	field, auto := r.field(c)
	if !auto {
		return r.store(field, value)
	}
	if value == "auto" {
		field.SetZero()
		return nil
	}
	if wrong := r.store(field.FieldByName("Value"), value); wrong != nil {
		return wrong
	}
	field.FieldByName("Set").SetBool(true)
	return nil
}

// store checks by the kind of the field.
func (r *row) store(field reflect.Value, value any) *wrong {
	switch kindOf(field.Type()) {
	case kindNumber:
		n, ok := value.(int64)
		if !ok {
			return r.notNumber(value, true)
		}
		if wrong := r.bounded(float64(n), fmt.Sprint(n)); wrong != nil {
			return wrong
		}
		if r.powerOfTwo && bits.OnesCount64(uint64(n)) != 1 {
			return r.notPowerOfTwo(n)
		}
		field.SetInt(n)
	case kindFraction:
		f, ok := value.(float64)
		if n, whole := value.(int64); whole {
			f, ok = float64(n), true
		}
		if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
			return r.notNumber(value, false)
		}
		if wrong := r.bounded(f, fmt.Sprint(f)); wrong != nil {
			return wrong
		}
		field.SetFloat(f)
	case kindSwitch:
		b, ok := value.(bool)
		if !ok {
			return r.notSwitch(value)
		}
		field.SetBool(b)
	case kindText:
		return r.storeText(field, value)
	case kindList:
		return r.storeList(field, value)
	default:
		return r.storeUnit(field, value)
	}
	return nil
}

// storeUnit checks a duration, size or rate.
func (r *row) storeUnit(field reflect.Value, value any) *wrong {
	kind := kindOf(field.Type())
	s, ok := value.(string)
	if !ok {
		return refuse(codeUnit, fmt.Sprintf("%s is a %s and needs a unit", r.name(), kind),
			r.bareNumberLabel(kind, value))
	}
	n, ok := parseKind(kind, s)
	if !ok {
		return refuse(codeUnit, fmt.Sprintf("%s: %q is not a %s", r.name(), s, kind),
			r.unitLabel(kind, s))
	}
	if wrong := r.bounded(float64(n), quote(s)); wrong != nil {
		return wrong
	}
	field.SetInt(n)
	return nil
}

// parseKind reads a string with a unit.
func parseKind(k kind, s string) (int64, bool) {
	switch k {
	case kindDuration:
		d, ok := parseDuration(s)
		return int64(d), ok
	case kindSize:
		n, ok := parseSize(s)
		return int64(n), ok
	}
	n, ok := parseRate(s)
	return int64(n), ok
}

// storeText checks a string.
func (r *row) storeText(field reflect.Value, value any) *wrong {
	s, ok := value.(string)
	if !ok {
		label := "write it in quotes" + inQuotes(value)
		if len(r.enum) > 0 {
			label = "one of: " + strings.Join(r.enum, ", ")
		} else if wrong := r.word(fmt.Sprint(value)); wrong != nil {
			label = wrong.label
		}
		return refuse(codeType, r.name()+" must be a string", label)
	}
	if wrong := r.word(s); wrong != nil {
		return wrong
	}
	field.SetString(s)
	return nil
}

// storeList checks a list of strings.
func (r *row) storeList(field reflect.Value, value any) *wrong {
	if s, ok := value.(string); ok {
		label := "write [" + quote(s) + "]"
		if wrong := r.word(s); wrong != nil {
			label = wrong.label
		}
		return refuse(codeType, r.name()+" must be a list", label)
	}
	items, ok := value.([]any)
	if !ok {
		label := `write ["…"]`
		if r.def != "[]" {
			label = "write " + r.def
		}
		return refuse(codeType, r.name()+" must be a list", label)
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		s, ok := item.(string)
		label := "write it in quotes" + inQuotes(item)
		if wrong := r.word(fmt.Sprint(item)); wrong != nil {
			label = wrong.label
		}
		wrong := refuse(codeType, r.name()+" must hold strings", label)
		if ok {
			wrong = r.word(s)
		}
		if wrong != nil {
			wrong.item = i
			return wrong
		}
		list = append(list, s)
	}
	field.Set(reflect.ValueOf(list))
	return nil
}

// word checks a text against the row's words or form.
func (r *row) word(s string) *wrong {
	if r.enum != nil && !slices.Contains(r.enum, s) {
		label := "one of: " + strings.Join(r.enum, ", ")
		if len(r.enum) == 1 {
			label = fmt.Sprintf("the only value is %q", r.enum[0])
		} else if guess := orElse(r.alias[strings.ToLower(s)], closest(s, r.enum)); guess != "" &&
			slices.Contains(r.enum, guess) {
			label = fmt.Sprintf("did you mean %q? (%s)", guess, label)
		}
		return refuse(codeWord, fmt.Sprintf("%s has no value %q", r.name(), s), label)
	}
	if r.form != nil {
		if label := r.form.check(s); label != "" {
			message := fmt.Sprintf("%s: %q is not %s", r.name(), s, r.form.what)
			return refuse(codeForm, message, label)
		}
	}
	return nil
}

// bounded compares with least and most; shown is the value as the file writes it.
func (r *row) bounded(n float64, shown string) *wrong {
	least, hasLeast := measure(r.least)
	most, hasMost := measure(r.most)
	if (!hasLeast || n >= least) && (!hasMost || n <= most) {
		return nil
	}
	label := "must be at least " + r.least
	switch {
	case hasLeast && hasMost:
		label = fmt.Sprintf("must be between %s and %s", r.least, r.most)
	case hasMost:
		label = "must be at most " + r.most
	}
	if hasMost && most <= 1 && n > 1 && n/100 >= least && n/100 <= most {
		label += fmt.Sprintf("; for %s %% write %.2f", shown, n/100)
	}
	return refuse(codeRange, r.name()+" is out of range", label)
}

// measure is a bound as a number, in the unit that the field counts in.
func measure(bound string) (float64, bool) {
	if bound == "" {
		return 0, false
	}
	s, err := strconv.Unquote(bound)
	if err != nil {
		f, err := strconv.ParseFloat(bound, 64)
		return f, err == nil
	}
	for _, k := range []kind{kindDuration, kindSize} {
		if n, ok := parseKind(k, s); ok {
			return float64(n), true
		}
	}
	panic(fmt.Sprintf("config: bound %s is neither a duration nor a size", bound))
}

// notSwitch explains what stands where a boolean must.
func (r *row) notSwitch(value any) *wrong {
	label := "write true or false"
	switch v := value.(type) {
	case string:
		switch strings.ToLower(v) {
		case "true", "yes", "on", "1":
			label = "write true, without quotes"
		case "false", "no", "off", "0":
			label = "write false, without quotes"
		}
	case int64:
		label = fmt.Sprintf("write %t", v != 0)
	}
	return refuse(codeType, r.name()+" must be true or false", label)
}

// notPowerOfTwo names the neighbours.
func (r *row) notPowerOfTwo(n int64) *wrong {
	below := int64(1) << (bits.Len64(uint64(n)) - 1)
	label := fmt.Sprintf("try %d or %d", below, below*2)
	if most, ok := measure(r.most); ok && float64(below*2) > most {
		label = fmt.Sprintf("try %d", below)
	}
	return refuse(codePower, r.name()+" must be a power of two", label)
}

// inQuotes shows a simple value as a string.
func inQuotes(value any) string {
	switch value.(type) {
	case int64, float64, bool, time.Time:
		return fmt.Sprintf(": %q", fmt.Sprint(value))
	}
	return ""
}

// orElse is a unless it is empty.
func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
