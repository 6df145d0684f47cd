package tokenizer

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/ardanlabs/jinja"
)

// jsonStyle is how json.dumps writes: what tojson is in transformers.
type jsonStyle struct {
	ascii     bool
	sorted    bool
	indent    string
	lines     bool // an indent was given, if only ""
	item, key string
}

// filterToJSON is tojson(ensure_ascii=false, indent, separators, sort_keys=false).
func filterToJSON(c call) (jinja.Value, error) {
	style := jsonStyle{
		ascii: c.arg(1, "ensure_ascii").IsTruthy(), sorted: c.arg(4, "sort_keys").IsTruthy(),
		item: ", ", key: ": ",
	}
	switch indent := c.arg(2, "indent"); {
	case indent.IsInt():
		style.lines = true
		style.indent = strings.Repeat(" ", int(max(0, min(indent.AsInt(), 100))))
	case indent.IsString():
		style.lines, style.indent = true, indent.AsString()
	}
	if style.lines {
		style.item = ","
	}
	if separators := c.arg(3, "separators"); separators.IsList() {
		if separators.AsList().Len() != 2 {
			return jinja.Undefined(), errors.New("tojson: separators should be two strings")
		}
		style.item = pythonText(separators.AsList().Get(0))
		style.key = pythonText(separators.AsList().Get(1))
	}
	var out strings.Builder
	err := style.write(&out, c.args[0], 0)
	return jinja.NewString(out.String()), err
}

func (s jsonStyle) write(out *strings.Builder, v jinja.Value, depth int) error {
	switch {
	case v.IsNone():
		out.WriteString("null")
	case v.IsBool():
		fmt.Fprintf(out, "%t", v.AsBool())
	case v.IsInt():
		fmt.Fprintf(out, "%d", v.AsInt())
	case v.IsFloat():
		out.WriteString(jsonFloat(v.AsFloat()))
	case v.IsString():
		s.text(out, v.AsString())
	case v.IsList():
		return s.group(out, "[]", v.AsList().Len(), depth, func(i int) error {
			return s.write(out, v.AsList().Get(i), depth+1)
		})
	case v.IsDict():
		keys := v.AsDict().OrderedKeys()
		if s.sorted {
			sort.Strings(keys)
		}
		return s.group(out, "{}", len(keys), depth, func(i int) error {
			s.text(out, keys[i])
			out.WriteString(s.key)
			return s.write(out, v.AsDict().Data[keys[i]], depth+1)
		})
	default:
		return errors.New("tojson: this value has no JSON")
	}
	return nil
}

// group writes n elements between brackets.
func (s jsonStyle) group(out *strings.Builder, brackets string, n, depth int,
	element func(i int) error) error {
	newline := func(depth int) {
		if s.lines && n > 0 {
			out.WriteString("\n" + strings.Repeat(s.indent, depth))
		}
	}
	out.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			out.WriteString(s.item)
		}
		newline(depth + 1)
		if err := element(i); err != nil {
			return err
		}
	}
	newline(depth)
	out.WriteByte(brackets[1])
	return nil
}

// jsonFloat is how Python's json writes a float.
func jsonFloat(f float64) string {
	switch text := pythonFloat(f); text {
	case "nan":
		return "NaN"
	case "inf":
		return "Infinity"
	case "-inf":
		return "-Infinity"
	default:
		return text
	}
}

func (s jsonStyle) text(out *strings.Builder, text string) {
	const plain, escape = "\"\\\n\r\t\b\f", `"\nrtbf`
	out.WriteByte('"')
	for _, r := range text {
		at := strings.IndexRune(plain, r)
		switch {
		case at >= 0:
			out.WriteByte('\\')
			out.WriteByte(escape[at])
		case r < ' ' || s.ascii && r > 0x7F && r < 0x10000:
			fmt.Fprintf(out, `\u%04x`, r)
		case s.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}
