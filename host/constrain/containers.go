package constrain

import (
	"math"
	"slices"
	"strconv"
)

// count reads a keyword that is a number of something; fallback when it is not there.
func count(n *node, keyword string, fallback int) (int, error) {
	v := n.get(keyword)
	if v == nil {
		return fallback, nil
	}
	i, err := strconv.Atoi(v.raw)
	if err != nil || i < 0 {
		return 0, refuse(n, keyword, "it is %.40s; it must be a number, not negative, without "+
			"a fraction", v.compact())
	}
	return min(i, math.MaxInt32), nil
}

// array appends an array.
func (c *compiler) array(from int, n *node) (int, error) {
	least, err := count(n, "minItems", 0)
	if err != nil {
		return 0, err
	}
	most, err := count(n, "maxItems", -1)
	if err != nil {
		return 0, err
	}
	if u := n.get("uniqueItems"); u != nil && u.raw != "false" && (most < 0 || most > 1) {
		return 0, refuse(n, "uniqueItems", "it is not supported")
	}
	l := listOf{least: least, most: most}
	if prefix := n.get("prefixItems"); prefix != nil {
		if !prefix.array() {
			return 0, refuse(n, "prefixItems", "it must be an array of schemas")
		}
		for _, item := range prefix.list {
			r, err := c.rule(item)
			if err != nil {
				return 0, err
			}
			l.first = append(l.first, r)
		}
	}
	if err := c.rest(n, &l); err != nil {
		return 0, err
	}
	switch {
	case most >= 0 && least > most:
		return 0, refuse(n, "minItems", "it is %d, more than maxItems %d", least, most)
	case l.rest == nil && least > len(l.first):
		return 0, refuse(n, "minItems", "it is %d, but items beyond %d are not allowed", least,
			len(l.first))
	}
	return c.g.list(from, l), nil
}

// rest finds what the elements behind prefixItems are.
func (c *compiler) rest(n *node, l *listOf) error {
	items := n.get("items")
	switch {
	case items == nil && len(l.first) == 0, items != nil && items.raw == "true":
		l.rest = c.g.anyValue
	case items == nil && l.least > len(l.first):
		l.rest = c.g.anyValue
	case items == nil: // They may be there, and need not.
	case items.raw == "false":
		if len(l.first) == 0 {
			l.most = 0
		}
	case items.array():
		return refuse(n, "items", "an array of schemas is called prefixItems now")
	default:
		r, err := c.rule(items)
		l.rest = func() *rule { return r }
		return err
	}
	return nil
}

// property is a member that a schema names.
type property struct {
	name     string
	schema   *node
	required bool
}

// properties lists the members of an object in the order of the schema, and the schema of further
// ones: nil where there are none.
func properties(n *node) (list []property, more *node, err error) {
	props, required := n.get("properties"), n.get("required")
	if props != nil && !props.object() {
		return nil, nil, refuse(n, "properties", "it must be an object")
	}
	if required != nil && !required.array() {
		return nil, nil, refuse(n, "required", "it must be an array of names")
	}
	more = n.get("additionalProperties")
	if more == nil && props == nil {
		more = &node{raw: "true"} // Nothing is said about members: any may be there.
	}
	if more != nil && more.raw == "false" {
		more = nil
	}
	if props != nil {
		for _, m := range props.members {
			list = append(list, property{name: m.name, schema: m.value})
		}
	}
	if required == nil {
		return list, more, nil
	}
	for _, r := range required.list {
		name, ok := r.text()
		if !ok {
			return nil, nil, refuse(n, "required", "%.40s is not a name", r.compact())
		}
		i := slices.IndexFunc(list, func(p property) bool { return p.name == name })
		if i >= 0 {
			list[i].required = true
			continue
		}
		schema := more
		if schema == nil && n.get("additionalProperties") != nil {
			return nil, nil, refuse(n, "required", "%.40q is not among the properties, and others "+
				"are not allowed", name)
		}
		if schema == nil {
			schema = &node{raw: "true"}
		}
		list = append(list, property{name, schema, true})
	}
	return list, more, nil
}

// object appends an object: the named members in the schema's order, then further ones.
func (c *compiler) object(from int, n *node) (int, error) {
	list, more, err := properties(n)
	if err != nil {
		return 0, err
	}
	if err := sizes(n, list, more); err != nil {
		return 0, err
	}
	g := c.g
	if more != nil && more.raw == "true" && len(list) == 0 {
		to := g.vertex()
		g.call(from, to, g.anyObject())
		return to, nil
	}
	// none: no member is written yet; some: there is one.
	none, some := g.literal(from, "{"), g.vertex()
	for _, p := range list {
		key, after := g.vertex(), g.vertex()
		g.skip(none, key)
		g.edge(some, key, ',', ',')
		end, err := c.value(g.literal(key, quote(p.name)+":"), p.schema)
		if err != nil {
			return 0, err
		}
		g.skip(end, after)
		if p.required {
			none, some = g.vertex(), after
			continue
		}
		g.skip(some, after)
		none, some = g.behind(none), after
	}
	to := g.vertex()
	g.edge(none, to, '}', '}')
	g.edge(some, to, '}', '}')
	if more == nil {
		return to, nil
	}
	key := g.vertex()
	g.skip(none, key)
	g.edge(some, key, ',', ',')
	r, err := c.further(more)
	if err != nil {
		return 0, err
	}
	g.call(g.literal(g.otherKey(key, list), ":"), some, r)
	return to, nil
}

func (c *compiler) further(more *node) (*rule, error) {
	if more.raw == "true" {
		return c.g.anyValue(), nil
	}
	return c.rule(more)
}

// sizes refuses bounds on the number of members that the members themselves do not keep.
func sizes(n *node, list []property, more *node) error {
	required := 0
	for _, p := range list {
		if p.required {
			required++
		}
	}
	least, err := count(n, "minProperties", 0)
	if err != nil {
		return err
	}
	most, err := count(n, "maxProperties", math.MaxInt32)
	switch {
	case err != nil:
		return err
	case least > required:
		return refuse(n, "minProperties", "it is not supported beyond the required properties")
	case most < len(list), most < math.MaxInt32 && more != nil:
		return refuse(n, "maxProperties", "it is not supported")
	}
	return nil
}

// keyBytes are the characters of the keys that are made up.
const keyBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// otherKey appends a key, with its quotes, that is none of the properties.
func (g *graph) otherKey(from int, list []property) int {
	free, to := g.vertex(), g.vertex()
	for _, b := range []byte(keyBytes) {
		g.edge(free, free, b, b)
	}
	g.edge(free, to, '"', '"')
	names := make([]string, 0, len(list))
	for _, p := range list {
		names = append(names, p.name)
	}
	g.avoid(g.literal(from, `"`), keyEnds{free, to}, names, true)
	return to
}

// keyEnds are where a key goes on that is no beginning of a name, and where it has ended.
type keyEnds struct{ free, to int }

// avoid adds the keys that go on from at, other than names; names are what is left of them.
func (g *graph) avoid(at int, e keyEnds, names []string, first bool) {
	for _, b := range []byte(keyBytes) {
		var rest []string
		for _, name := range names {
			if name != "" && name[0] == b {
				rest = append(rest, name[1:])
			}
		}
		if rest == nil {
			g.edge(at, e.free, b, b)
			continue
		}
		next := g.vertex()
		g.edge(at, next, b, b)
		g.avoid(next, e, rest, false)
	}
	if !first && !slices.Contains(names, "") {
		g.edge(at, e.to, '"', '"')
	}
}
