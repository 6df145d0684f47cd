package tokenizer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// isPythonSpace is what str.strip() and \s take for white space.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }

// pythonText is str(v): what Jinja2 prints.
func pythonText(v jinja.Value) string {
	switch {
	case v.IsString():
		return v.AsString()
	case v.IsUndefined():
		return ""
	}
	return pythonRepr(v)
}

// pythonRepr is repr(v): how a value looks inside a printed list.
func pythonRepr(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "Undefined"
	case v.IsString():
		return quotePython(v.AsString())
	case v.IsFloat():
		return pythonFloat(v.AsFloat())
	case v.IsList():
		items := make([]string, v.AsList().Len())
		for i, item := range v.AsList().Items {
			items[i] = pythonRepr(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case v.IsDict():
		d := v.AsDict()
		items := make([]string, len(d.Keys))
		for i, key := range d.Keys {
			items[i] = quotePython(key) + ": " + pythonRepr(d.Data[key])
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return v.String() // None, True, False, integers
}

// pythonFloat is repr of a float: shortest digits, exponents from 1e16 and below 1e-4, and
// always something that tells it from an integer.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'f', -1, 64), "+"))
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// quotePython is repr of a string.
func quotePython(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var out strings.Builder
	out.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			out.WriteString(`\` + string(r))
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&out, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			fmt.Fprintf(&out, `\U%08x`, r)
		}
	}
	out.WriteRune(quote)
	return out.String()
}

// maxJSONDepth bounds how deep a client's JSON may nest.
const maxJSONDepth = 64

// jsonValue turns a JSON document into a template value. The order of keys is kept, and
// whole numbers stay apart from floats, as both show in a prompt.
func jsonValue(raw []byte) (jinja.Value, error) {
	r := &jsonReader{data: raw}
	v, err := r.value(0)
	if err == nil && r.peek() != 0 {
		err = r.fail("something follows the end of the value")
	}
	return v, err
}

func (r *jsonReader) value(depth int) (jinja.Value, error) {
	if depth == maxJSONDepth {
		return jinja.None(), r.fail("more than %d values in one another", maxJSONDepth)
	}
	switch r.peek() {
	case '{':
		dict := jinja.NewDict()
		err := r.object(func(key string) error {
			v, err := r.value(depth + 1)
			dict.AsDict().Set(key, v)
			return err
		})
		return dict, err
	case '[':
		var items []jinja.Value
		err := r.array(func(int) error {
			v, err := r.value(depth + 1)
			items = append(items, v)
			return err
		})
		return jinja.NewList(items), err
	case '"':
		text, err := r.text()
		return jinja.NewString(validUTF8(string(text))), err
	}
	return r.scalar()
}

func (r *jsonReader) scalar() (jinja.Value, error) {
	raw, err := r.skip()
	if err != nil {
		return jinja.None(), err
	}
	switch text := string(raw); text {
	case "null":
		return jinja.None(), nil
	case "true", "false":
		return jinja.NewBool(text == "true"), nil
	default:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return jinja.NewInt(n), nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || strings.Trim(text, "+-.0123456789eE") != "" {
			return jinja.None(), r.fail("found %s where a value should be", clip(raw))
		}
		return jinja.NewFloat(f), nil
	}
}
