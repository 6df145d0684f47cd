package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/ardanlabs/jinja"
)

// call is what a filter, method or function of a template is called with. A filter's or
// method's first argument is what it stands behind.
type call struct {
	args   []jinja.Value
	kwargs map[string]jinja.Value
}

// arg returns the argument at position i or of that name, Undefined if it is not given.
func (c call) arg(i int, name string) jinja.Value {
	if i < len(c.args) {
		return c.args[i]
	}
	if v, ok := c.kwargs[name]; ok {
		return v
	}
	return jinja.Undefined()
}

func (c call) text() string { return pythonText(c.args[0]) }

type function func(c call) (jinja.Value, error)

func (f function) value(name string) jinja.Value {
	call := func(a []jinja.Value, k map[string]jinja.Value) (jinja.Value, error) {
		return f(call{a, k})
	}
	return jinja.NewCallable(name, call)
}

// filterNamed returns the filter that we do in place of the library, nil for the others.
func filterNamed(name string) function {
	switch name {
	case "tojson":
		return filterToJSON
	case "string":
		return func(c call) (jinja.Value, error) { return jinja.NewString(c.text()), nil }
	case "trim":
		return filterTrim
	case "join":
		return filterJoin
	case "list":
		return filterList
	case "first":
		return func(c call) (jinja.Value, error) { return filterEnd(c, 0) }
	case "last":
		return func(c call) (jinja.Value, error) { return filterEnd(c, -1) }
	case "length", "count":
		return filterLength
	case "map":
		return filterMap
	case "select", "reject", "selectattr", "rejectattr":
		byAttribute, want := strings.HasSuffix(name, "attr"), strings.HasPrefix(name, "select")
		return func(c call) (jinja.Value, error) { return filterSelect(c, byAttribute, want) }
	case "indent":
		return filterIndent
	case "dictsort":
		return filterDictSort
	}
	return nil
}

func filterTrim(c call) (jinja.Value, error) {
	return jinja.NewString(pythonStrip(c.text(), c.arg(1, "chars"), true, true)), nil
}

// pythonStrip is str.strip: chars is a set of characters, or nothing for white space.
func pythonStrip(s string, chars jinja.Value, left, right bool) string {
	cut := isPythonSpace
	if chars.IsString() {
		cut = func(r rune) bool { return strings.ContainsRune(chars.AsString(), r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// iterate lists what a for loop would see in v.
func iterate(v jinja.Value) ([]jinja.Value, error) {
	var items []jinja.Value
	switch {
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsDict():
		for _, key := range v.AsDict().Keys {
			items = append(items, jinja.NewString(key))
		}
	case v.IsString():
		for _, r := range v.AsString() {
			items = append(items, jinja.NewString(string(r)))
		}
	case !v.IsUndefined():
		return nil, fmt.Errorf("%s is not iterable", pythonRepr(v))
	}
	return items, nil
}

// attribute is v.name or v['name']; a path "a.b" goes on inside.
func attribute(v jinja.Value, name string) jinja.Value {
	for part := range strings.SplitSeq(name, ".") {
		if !v.IsDict() {
			return jinja.Undefined()
		}
		v, _ = v.AsDict().Get(part)
	}
	return v
}

func filterJoin(c call) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	texts := make([]string, len(items))
	for i, item := range items {
		if name := c.arg(2, "attribute"); name.IsString() {
			item = attribute(item, name.AsString())
		}
		texts[i] = pythonText(item)
	}
	return jinja.NewString(strings.Join(texts, pythonText(c.arg(1, "d")))), err
}

func filterList(c call) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	return jinja.NewList(slices.Clone(items)), err
}

func filterEnd(c call, end int) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	if err != nil || len(items) == 0 {
		return jinja.Undefined(), err
	}
	return items[(len(items)+end)%len(items)], nil
}

func filterLength(c call) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	return jinja.NewInt(int64(len(items))), err
}

// filterMap does map(attribute='a', default=…) and map('filter').
func filterMap(c call) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	if err != nil && c.args[0].IsTruthy() {
		return jinja.Undefined(), err
	}
	out := make([]jinja.Value, len(items))
	name, byAttribute := c.kwargs["attribute"]
	for i, item := range items {
		if byAttribute {
			out[i] = attribute(item, pythonText(name))
			if otherwise, ok := c.kwargs["default"]; ok && out[i].IsUndefined() {
				out[i] = otherwise
			}
			continue
		}
		one := call{append([]jinja.Value{item}, c.args[min(2, len(c.args)):]...), c.kwargs}
		if out[i], err = mapped(pythonText(c.arg(1, "")), one); err != nil {
			return jinja.Undefined(), err
		}
	}
	return jinja.NewList(out), nil
}

// mapped does one element of map('name').
func mapped(name string, c call) (jinja.Value, error) {
	filter := filterNamed(name)
	if filter == nil && slices.Contains([]string{"lower", "upper", "title", "capitalize"}, name) {
		filter = methodNamed(name)
	}
	if filter == nil {
		return jinja.Undefined(), fmt.Errorf("map with the filter %q is not supported", name)
	}
	return filter(c)
}

// filterSelect does select, reject, selectattr and rejectattr.
func filterSelect(c call, byAttribute, want bool) (jinja.Value, error) {
	items, err := iterate(c.args[0])
	if err != nil && c.args[0].IsTruthy() {
		return jinja.Undefined(), err
	}
	rest := c.args[1:]
	if byAttribute && len(rest) == 0 {
		return jinja.Undefined(), errors.New("selectattr and rejectattr need an attribute")
	}
	var out []jinja.Value
	for _, item := range items {
		v, test := item, rest
		if byAttribute {
			v, test = attribute(item, pythonText(rest[0])), rest[1:]
		}
		ok := v.IsTruthy()
		if len(test) > 0 {
			if ok, err = jinjaTest(pythonText(test[0]), v, test[1:]); err != nil {
				return jinja.Undefined(), err
			}
		}
		if ok == want {
			out = append(out, item)
		}
	}
	return jinja.NewList(out), nil
}

// jinjaTest is "v is name(args)", for the filters that take a test by name.
func jinjaTest(name string, v jinja.Value, args []jinja.Value) (bool, error) {
	switch name {
	case "defined":
		return !v.IsUndefined(), nil
	case "undefined":
		return v.IsUndefined(), nil
	case "none":
		return v.IsNone(), nil
	case "string":
		return v.IsString(), nil
	case "mapping":
		return v.IsDict(), nil
	case "iterable", "sequence":
		return v.IsString() || v.IsList() || v.IsDict(), nil
	case "number":
		return v.IsNumber() || v.IsBool(), nil
	case "true", "false":
		return v.IsBool() && v.AsBool() == (name == "true"), nil
	}
	if len(args) != 1 {
		return false, fmt.Errorf("the test %q is not supported", name)
	}
	switch name {
	case "equalto", "eq", "==", "sameas":
		return v.Equals(args[0]), nil
	case "ne", "!=":
		return !v.Equals(args[0]), nil
	case "in":
		items, err := iterate(args[0])
		if args[0].IsString() {
			return v.IsString() && strings.Contains(args[0].AsString(), v.AsString()), nil
		}
		return slices.ContainsFunc(items, v.Equals), err
	}
	return false, fmt.Errorf("the test %q is not supported", name)
}

func filterIndent(c call) (jinja.Value, error) {
	pad := "    "
	switch width := c.arg(1, "width"); {
	case width.IsInt():
		pad = strings.Repeat(" ", int(max(0, min(width.AsInt(), 1000))))
	case width.IsString():
		pad = width.AsString()
	}
	lines := strings.Split(c.text(), "\n")
	blank := c.arg(3, "blank").IsTruthy()
	for i := range lines {
		if (i > 0 || c.arg(2, "first").IsTruthy()) && (lines[i] != "" || blank) {
			lines[i] = pad + lines[i]
		}
	}
	return jinja.NewString(strings.Join(lines, "\n")), nil
}

// filterDictSort sorts by key, or by='value'; capitals count as small letters.
func filterDictSort(c call) (jinja.Value, error) {
	if !c.args[0].IsDict() {
		return jinja.Undefined(), errors.New("dictsort needs a mapping")
	}
	d := c.args[0].AsDict()
	keys := d.OrderedKeys()
	order := func(key string) string {
		if pythonText(c.arg(2, "by")) == "value" {
			key = pythonText(d.Data[key])
		}
		if c.arg(1, "case_sensitive").IsTruthy() {
			return key
		}
		return strings.ToLower(key)
	}
	sort.SliceStable(keys, func(i, j int) bool { return order(keys[i]) < order(keys[j]) })
	if c.arg(3, "reverse").IsTruthy() {
		slices.Reverse(keys)
	}
	pairs := make([]jinja.Value, len(keys))
	for i, key := range keys {
		pairs[i] = jinja.NewList([]jinja.Value{jinja.NewString(key), d.Data[key]})
	}
	return jinja.NewList(pairs), nil
}
