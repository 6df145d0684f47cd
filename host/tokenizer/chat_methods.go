package tokenizer

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// methodNamed returns the method of strings or mappings that we do in place of the library,
// nil for the others. (It looks a mapping's own keys up first, so that {"items": …}.items()
// fails, and takes fewer arguments than Python.)
func methodNamed(name string) function {
	switch name {
	case "strip", "lstrip", "rstrip":
		return stripMethod(name != "rstrip", name != "lstrip")
	case "split", "rsplit":
		return stringMethod(func(s string, c call) jinja.Value {
			return split(s, c, name == "rsplit")
		})
	case "splitlines":
		return stringMethod(splitLines)
	case "startswith":
		return affix(strings.HasPrefix)
	case "endswith":
		return affix(strings.HasSuffix)
	case "removeprefix":
		return cutAffix(strings.TrimPrefix)
	case "removesuffix":
		return cutAffix(strings.TrimSuffix)
	case "lower":
		return textMethod(strings.ToLower)
	case "upper":
		return textMethod(strings.ToUpper)
	case "title":
		return textMethod(pythonTitle)
	case "capitalize":
		return textMethod(pythonCapitalize)
	case "join":
		return stringMethod(joinMethod)
	case "isdigit":
		return stringMethod(isDigits)
	case "get":
		return dictMethod(getMethod)
	case "items":
		return dictMethod(itemsMethod)
	case "keys":
		return dictMethod(keysMethod)
	case "values":
		return dictMethod(valuesMethod)
	}
	return nil
}

// noMethod is the error for a method of a value that has none of that kind.
func noMethod(v jinja.Value) error {
	return fmt.Errorf("%s has no such method", clip([]byte(pythonRepr(v))))
}

func stringMethod(do func(s string, c call) jinja.Value) function {
	return func(c call) (jinja.Value, error) {
		if !c.args[0].IsString() {
			return jinja.Undefined(), noMethod(c.args[0])
		}
		return do(c.args[0].AsString(), c), nil
	}
}

func textMethod(do func(string) string) function {
	return stringMethod(func(s string, _ call) jinja.Value { return jinja.NewString(do(s)) })
}

func dictMethod(do func(d *jinja.Dict, c call) jinja.Value) function {
	return func(c call) (jinja.Value, error) {
		if !c.args[0].IsDict() {
			return jinja.Undefined(), noMethod(c.args[0])
		}
		return do(c.args[0].AsDict(), c), nil
	}
}

func stripMethod(left, right bool) function {
	return stringMethod(func(s string, c call) jinja.Value {
		return jinja.NewString(pythonStrip(s, c.arg(1, "chars"), left, right))
	})
}

// affix tests for a prefix or suffix, or for any of several.
func affix(has func(s, affix string) bool) function {
	return stringMethod(func(s string, c call) jinja.Value {
		want := c.arg(1, "")
		if !want.IsList() {
			return jinja.NewBool(want.IsString() && has(s, want.AsString()))
		}
		for _, one := range want.AsList().Items {
			if one.IsString() && has(s, one.AsString()) {
				return jinja.NewBool(true)
			}
		}
		return jinja.NewBool(false)
	})
}

func cutAffix(cut func(s, affix string) string) function {
	return stringMethod(func(s string, c call) jinja.Value {
		return jinja.NewString(cut(s, pythonText(c.arg(1, ""))))
	})
}

// split is str.split(sep, maxsplit), or rsplit: it cuts from the right.
func split(s string, c call, fromRight bool) jinja.Value {
	most := -1
	if n := c.arg(2, "maxsplit"); n.IsInt() && n.AsInt() >= 0 {
		most = int(min(n.AsInt(), int64(len(s))))
	}
	sep := c.arg(1, "sep")
	var parts []string
	switch {
	case sep.IsString() && sep.AsString() != "":
		parts = strings.Split(s, sep.AsString())
	default: // runs of white space, none at the ends
		parts = strings.FieldsFunc(s, isPythonSpace)
		sep = jinja.NewString(" ")
	}
	if most >= 0 && len(parts) > most+1 {
		if rest := len(parts) - most; fromRight {
			parts = append([]string{strings.Join(parts[:rest], sep.AsString())}, parts[rest:]...)
		} else {
			parts = append(parts[:most:most], strings.Join(parts[most:], sep.AsString()))
		}
	}
	return texts(parts)
}

func texts(parts []string) jinja.Value {
	items := make([]jinja.Value, len(parts))
	for i, part := range parts {
		items[i] = jinja.NewString(part)
	}
	return jinja.NewList(items)
}

func splitLines(s string, _ call) jinja.Value {
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	if s == "" {
		return jinja.NewList(nil)
	}
	return texts(strings.Split(strings.TrimSuffix(s, "\n"), "\n"))
}

func joinMethod(s string, c call) jinja.Value {
	items, _ := iterate(c.arg(1, ""))
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = pythonText(item)
	}
	return jinja.NewString(strings.Join(parts, s))
}

func isDigits(s string, _ call) jinja.Value {
	notDigit := func(r rune) bool { return !unicode.IsDigit(r) }
	return jinja.NewBool(s != "" && strings.IndexFunc(s, notDigit) < 0)
}

// pythonTitle makes each letter that follows none a capital, and the others small.
func pythonTitle(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		first := !inWord
		inWord = unicode.IsLetter(r)
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func pythonCapitalize(s string) string {
	first := true
	return strings.Map(func(r rune) rune {
		if first {
			first = false
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func getMethod(d *jinja.Dict, c call) jinja.Value {
	if v, ok := d.Get(pythonText(c.arg(1, "key"))); ok {
		return v
	}
	if otherwise := c.arg(2, "default"); !otherwise.IsUndefined() {
		return otherwise
	}
	return jinja.None()
}

func itemsMethod(d *jinja.Dict, _ call) jinja.Value {
	pairs := make([]jinja.Value, len(d.Keys))
	for i, key := range d.Keys {
		pairs[i] = jinja.NewList([]jinja.Value{jinja.NewString(key), d.Data[key]})
	}
	return jinja.NewList(pairs)
}

func keysMethod(d *jinja.Dict, _ call) jinja.Value { return texts(d.Keys) }

func valuesMethod(d *jinja.Dict, _ call) jinja.Value {
	values := make([]jinja.Value, len(d.Keys))
	for i, key := range d.Keys {
		values[i] = d.Data[key]
	}
	return jinja.NewList(values)
}
