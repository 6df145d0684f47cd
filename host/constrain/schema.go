package constrain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// compiler turns one schema into a part of a graph.
type compiler struct {
	g      *graph
	root   *node
	prefix string // of the names of its rules
	rules  map[*node]*rule
	merged int
}

// Keywords that are understood, and those that say nothing about which values are valid.
const (
	understood = " type properties required additionalProperties items prefixItems minItems " +
		"maxItems enum const anyOf oneOf allOf $ref $defs definitions minimum maximum " +
		"exclusiveMinimum exclusiveMaximum minLength maxLength pattern format uniqueItems " +
		"minProperties maxProperties "
	annotations = " title description default examples example $schema $id $anchor $comment " +
		"deprecated readOnly writeOnly $defs definitions contentMediaType contentEncoding "
)

func isAnnotation(name string) bool {
	return strings.Contains(annotations, " "+name+" ") || strings.HasPrefix(name, "x-")
}

// refuse says that a keyword cannot be followed.
func refuse(n *node, keyword, format string, args ...any) error {
	return &SchemaError{n.pointer, keyword, fmt.Sprintf(format, args...)}
}

// check refuses keywords that are not understood.
func check(n *node) error {
	for _, m := range n.members {
		if !isAnnotation(m.name) && !strings.Contains(understood, " "+m.name+" ") {
			return refuse(n, m.name, "it is not supported")
		}
	}
	return nil
}

// validates lists the members that say something about values.
func validates(n *node) []field {
	return slices.DeleteFunc(slices.Clone(n.members), func(f field) bool {
		return isAnnotation(f.name)
	})
}

// value appends a value that a schema allows.
func (c *compiler) value(from int, n *node) (to int, err error) {
	switch {
	case n.raw == "true":
		to = c.g.vertex()
		c.g.call(from, to, c.g.anyValue())
		return to, nil
	case n.raw == "false":
		return 0, refuse(n, "false", "no value is allowed here")
	case !n.object():
		return 0, refuse(n, "", "a schema is an object or a boolean, not %.40s", n.compact())
	}
	if err := check(n); err != nil {
		return 0, err
	}
	says := validates(n)
	switch {
	case len(says) == 1 && says[0].name == "$ref":
		return c.reference(from, n)
	case n.get("$ref") != nil, n.get("allOf") != nil:
		merged, err := c.merge(n)
		if err != nil {
			return 0, err
		}
		return c.value(from, merged)
	case n.get("anyOf") != nil:
		return c.choice(from, n, "anyOf")
	case n.get("oneOf") != nil:
		return c.choice(from, n, "oneOf")
	}
	return c.plain(from, n)
}

// choice appends a value that one of several schemas allows.
func (c *compiler) choice(from int, n *node, keyword string) (int, error) {
	list := n.get(keyword)
	if !list.array() || len(list.list) == 0 {
		return 0, refuse(n, keyword, "it must be an array of schemas")
	}
	rest := &node{pointer: n.pointer, raw: "{"}
	for _, f := range n.members {
		if f.name != keyword {
			rest.members = append(rest.members, f)
		}
	}
	to := c.g.vertex()
	for _, alternative := range list.list {
		if len(validates(rest)) > 0 {
			both := &node{pointer: alternative.pointer, raw: "["}
			both.list = []*node{rest, alternative}
			alternative = &node{pointer: alternative.pointer, raw: "{",
				members: []field{{"allOf", both}}}
		}
		end, err := c.value(c.g.behind(from), alternative)
		if err != nil {
			return 0, err
		}
		c.g.skip(end, to)
	}
	return to, nil
}

// reference appends a call of the rule for the schema that $ref names.
func (c *compiler) reference(from int, n *node) (int, error) {
	target, err := c.resolve(n)
	if err != nil {
		return 0, err
	}
	r, err := c.rule(target)
	if err != nil {
		return 0, err
	}
	to := c.g.vertex()
	c.g.call(from, to, r)
	return to, nil
}

// rule is the rule of a schema, made once.
func (c *compiler) rule(n *node) (*rule, error) {
	if r := c.rules[n]; r != nil {
		return r, nil
	}
	var err error
	name := fmt.Sprintf("%s%d %s", c.prefix, len(c.rules), n.pointer)
	r := c.g.rule(name, func(from int) (to int) {
		c.rules[n] = c.g.rules[name] // It may refer to itself.
		if to, err = c.value(from, n); err != nil {
			return from
		}
		return to
	})
	return r, err
}

// resolve finds the schema that $ref names: a JSON pointer into this schema.
func (c *compiler) resolve(n *node) (*node, error) {
	ref, _ := n.get("$ref").text()
	path, local := strings.CutPrefix(ref, "#")
	if !local || path != "" && path[0] != '/' {
		return nil, refuse(n, "$ref", "%.80q does not begin with #/ : only this schema itself can "+
			"be referred to", ref)
	}
	at := c.root
	for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		step = unescapePointer.Replace(step)
		next := at.get(step)
		if i, err := strconv.Atoi(step); err == nil && at.array() && i >= 0 && i < len(at.list) {
			next = at.list[i]
		}
		if next == nil {
			return nil, refuse(n, "$ref", "there is no %.80q", ref)
		}
		at = next
	}
	return at, nil
}

// plain appends a value of a schema without references and combinations.
func (c *compiler) plain(from int, n *node) (int, error) {
	types, err := typesOf(n)
	if err != nil {
		return 0, err
	}
	if n.get("const") != nil || n.get("enum") != nil {
		return c.listed(from, n, types)
	}
	if types == nil {
		return c.value(from, &node{raw: "true"})
	}
	to := c.g.vertex()
	for _, name := range types {
		end, err := c.typed(c.g.behind(from), n, name)
		if err != nil {
			return 0, err
		}
		c.g.skip(end, to)
	}
	return to, nil
}

// typed appends a value of one type.
func (c *compiler) typed(from int, n *node, name string) (int, error) {
	switch name {
	case "object":
		return c.object(from, n)
	case "array":
		return c.array(from, n)
	case "string":
		return c.str(from, n)
	case "number", "integer":
		return c.number(from, n, name == "integer")
	case "boolean":
		return c.g.oneOf(from, []string{"true", "false"}), nil
	}
	return c.g.literal(from, "null"), nil
}

// typesOf lists the types that a schema names, or that its keywords speak of; nil is any.
func typesOf(n *node) ([]string, error) {
	t := n.get("type")
	if t == nil {
		var types []string
		for _, of := range []struct{ name, keywords string }{
			{"object", " properties required additionalProperties minProperties maxProperties "},
			{"array", " items prefixItems minItems maxItems uniqueItems "},
			{"string", " minLength maxLength pattern format "},
			{"number", " minimum maximum exclusiveMinimum exclusiveMaximum "},
		} {
			if slices.ContainsFunc(n.members, func(f field) bool {
				return strings.Contains(of.keywords, " "+f.name+" ")
			}) {
				types = append(types, of.name)
			}
		}
		return types, nil
	}
	list := t.list
	if !t.array() {
		list = []*node{t}
	}
	var types []string
	for _, e := range list {
		name, _ := e.text()
		switch name {
		case "object", "array", "string", "number", "integer", "boolean", "null":
			types = append(types, name)
		default:
			return nil, refuse(n, "type", "%.40s is not a type", e.compact())
		}
	}
	if len(types) == 0 {
		return nil, refuse(n, "type", "it is empty")
	}
	return types, nil
}

// listed appends one of the values of enum or const that have one of the types.
func (c *compiler) listed(from int, n *node, types []string) (int, error) {
	keyword, values := "enum", n.get("enum")
	if one := n.get("const"); one != nil {
		if values != nil {
			return 0, refuse(n, "const", "it is not supported together with enum")
		}
		keyword, values = "const", &node{raw: "[", list: []*node{one}}
	}
	for _, f := range validates(n) {
		if f.name != "type" && f.name != keyword {
			return 0, refuse(n, f.name, "it is not supported together with %s", keyword)
		}
	}
	if !values.array() {
		return 0, refuse(n, keyword, "it must be an array")
	}
	var texts []string
	for _, v := range values.list {
		kind := v.kind()
		if types != nil && !slices.Contains(types, kind) &&
			(kind != "integer" || !slices.Contains(types, "number")) {
			continue
		}
		texts = append(texts, v.compact())
	}
	if texts == nil {
		return 0, refuse(n, keyword, "none of its values has the type")
	}
	return c.g.oneOf(from, texts), nil
}

// compileSchema appends a value of a whole schema.
func compileSchema(g *graph, from int, root *node, prefix string) (to int, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			if _, full := cause.(fullError); !full {
				panic(cause)
			}
			err = &SchemaError{root.pointer, "", "it is too large to follow"}
		}
	}()
	c := &compiler{g: g, root: root, prefix: prefix, rules: map[*node]*rule{}}
	if to, err = c.value(from, root); err != nil {
		return 0, err
	}
	if r := g.leftRecursive(); r != nil {
		_, pointer, _ := strings.Cut(r.name, " ")
		return 0, &SchemaError{pointer, "$ref", "it leads back to itself"}
	}
	return to, nil
}
