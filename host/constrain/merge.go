package constrain

import (
	"slices"
	"strings"
)

// merge makes one schema of a schema, what its $ref names and its allOf.
func (c *compiler) merge(n *node) (*node, error) {
	if c.merged++; c.merged > maxMerged {
		return nil, refuse(n, "allOf", "more than %d schemas would have to be merged", maxMerged)
	}
	result := &node{pointer: n.pointer, raw: "{"}
	var parts []*node
	for _, f := range validates(n) {
		switch f.name {
		case "$ref":
			target, err := c.resolve(n)
			if err != nil {
				return nil, err
			}
			parts = append(parts, target)
		case "allOf":
			if !f.value.array() || len(f.value.list) == 0 {
				return nil, refuse(n, "allOf", "it must be an array of schemas")
			}
			parts = append(parts, f.value.list...)
		default:
			result.members = append(result.members, f)
		}
	}
	for i, part := range parts {
		if part.raw == "true" {
			continue
		}
		if !part.object() {
			return nil, refuse(part, "", "it is not supported inside allOf")
		}
		if err := check(part); err != nil {
			return nil, err
		}
		if len(parts) == 1 && len(result.members) == 0 {
			return part, nil // It may refer to itself.
		}
		if part.get("$ref") != nil || part.get("allOf") != nil {
			var err error
			if part, err = c.merge(part); err != nil {
				return nil, err
			}
		}
		if err := join(result, part, i == 0 && len(result.members) == 0); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// join adds what b says to a.
func join(a, b *node, fresh bool) error {
	if !fresh {
		if err := closed(a, b); err != nil {
			return err
		}
	}
	for _, f := range validates(b) {
		i := slices.IndexFunc(a.members, func(m field) bool { return m.name == f.name })
		if i < 0 {
			a.members = append(a.members, f)
			continue
		}
		both, ok := combine(f.name, a.members[i].value, f.value)
		if !ok {
			return refuse(b, f.name, "it cannot be merged with another one")
		}
		a.members[i].value = both
	}
	return nil
}

// closed refuses schemas of which one forbids or restricts the properties that only the other has.
func closed(a, b *node) error {
	for _, pair := range [][2]*node{{a, b}, {b, a}} {
		more := pair[0].get("additionalProperties")
		if more == nil || more.raw == "true" {
			continue
		}
		own, other := pair[0].get("properties"), pair[1].get("properties")
		if other == nil {
			continue
		}
		for _, m := range other.members {
			if own == nil || own.get(m.name) == nil {
				return refuse(pair[0], "additionalProperties",
					"it restricts %.40q of the schema it is merged with: that is not supported",
					m.name)
			}
		}
	}
	return nil
}

// combine makes one value of two for a keyword. It reports false where it does not know how.
func combine(keyword string, a, b *node) (*node, bool) {
	if a.compact() == b.compact() {
		return a, true
	}
	switch keyword {
	case "type":
		return bothTypes(a, b)
	case "properties":
		return bothProperties(a, b)
	case "required":
		if !a.array() || !b.array() {
			return nil, false
		}
		return &node{pointer: a.pointer, raw: "[", list: slices.Concat(a.list, b.list)}, true
	case "items":
		return bothSchemas(a, b), true
	case "enum":
		return bothLists(a, b)
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return larger(a, b, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return larger(a, b, -1)
	case "additionalProperties":
		switch {
		case a.raw == "true" || b.raw == "false":
			return b, true
		case b.raw == "true" || a.raw == "false":
			return a, true
		}
	case "uniqueItems":
		return &node{pointer: a.pointer, raw: "true"}, true
	}
	return nil, false
}

func bothSchemas(a, b *node) *node {
	list := &node{pointer: b.pointer, raw: "[", list: []*node{a, b}}
	return &node{pointer: b.pointer + "/allOf", raw: "{", members: []field{{"allOf", list}}}
}

func bothProperties(a, b *node) (*node, bool) {
	if !a.object() || !b.object() {
		return nil, false
	}
	both := &node{pointer: a.pointer, raw: "{", members: slices.Clone(a.members)}
	for _, m := range b.members {
		i := slices.IndexFunc(both.members, func(f field) bool { return f.name == m.name })
		if i < 0 {
			both.members = append(both.members, m)
		} else {
			both.members[i].value = bothSchemas(both.members[i].value, m.value)
		}
	}
	return both, true
}

// bothTypes lists the types that two lists have in common; an integer is a number.
func bothTypes(a, b *node) (*node, bool) {
	names := func(n *node) []string {
		if !n.array() {
			return []string{n.raw}
		}
		var all []string
		for _, e := range n.list {
			all = append(all, e.raw)
		}
		return all
	}
	const number, integer = `"number"`, `"integer"`
	both := &node{pointer: a.pointer, raw: "["}
	left, right := names(a), names(b)
	for _, t := range left {
		switch {
		case slices.Contains(right, t):
		case t == integer && slices.Contains(right, number):
		case t == number && slices.Contains(right, integer):
			t = integer
		default:
			continue
		}
		both.list = append(both.list, &node{raw: t})
	}
	return both, len(both.list) > 0
}

// bothLists lists the values that two lists have in common.
func bothLists(a, b *node) (*node, bool) {
	both := &node{pointer: a.pointer, raw: "["}
	for _, v := range a.list {
		same := func(w *node) bool { return v.compact() == w.compact() }
		if slices.ContainsFunc(b.list, same) {
			both.list = append(both.list, v)
		}
	}
	return both, len(both.list) > 0
}

// larger is the larger of two numbers, or the smaller one with sign -1.
func larger(a, b *node, sign int) (*node, bool) {
	x, _, ok := bound(strings.TrimSpace(a.raw))
	y, _, ok2 := bound(strings.TrimSpace(b.raw))
	if !ok || !ok2 {
		return nil, false
	}
	if x.Cmp(y) == sign {
		return a, true
	}
	return b, true
}
