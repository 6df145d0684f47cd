package constrain

import "math"

// formats are the ones that are understood, as expressions.
func formats() map[string]string {
	const (
		date = `[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])`
		hms  = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]`
		b255 = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
		host = `[a-z]([a-z0-9]{0,10}[a-z0-9])?(\.[a-z]([a-z0-9]{0,10}[a-z0-9])?){1,3}`
	)
	return map[string]string{
		"date": date, "time": hms + `Z`, "date-time": date + `T` + hms + `Z`,
		"uuid":     `[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`,
		"ipv4":     b255 + `(\.` + b255 + `){3}`,
		"ipv6":     `[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}`,
		"hostname": host,
		"email":    `[a-z0-9]{1,20}([._-][a-z0-9]{1,20}){0,2}@` + host,
		"uri":      `https?://` + host + `(/[a-z0-9_-]{1,20}){0,4}`,
		"duration": `P([1-9][0-9]{0,2}D|T[1-9][0-9]{0,2}[HMS])`,
	}
}

// str appends a string.
func (c *compiler) str(from int, n *node) (int, error) {
	least, err := count(n, "minLength", 0)
	if err != nil {
		return 0, err
	}
	most, err := count(n, "maxLength", -1)
	if err != nil {
		return 0, err
	}
	if most >= 0 && least > most {
		return 0, refuse(n, "minLength", "it is %d, more than maxLength %d", least, most)
	}
	keyword, expression := "pattern", ""
	switch format, p := n.get("format"), n.get("pattern"); {
	case p != nil && format != nil:
		return 0, refuse(n, "format", "it is not supported together with pattern")
	case p != nil:
		text, ok := p.text()
		if !ok {
			return 0, refuse(n, "pattern", "it must be a string")
		}
		expression = text
	case format != nil:
		name, _ := format.text()
		known, ok := formats()[name]
		if !ok {
			return 0, refuse(n, "format", "%.40q is not supported", name)
		}
		keyword, expression = "format", known
	default:
		return c.g.text(from, least, most), nil
	}
	re, err := parsePattern(expression)
	if err != nil {
		return 0, refuse(n, keyword, "%v", err)
	}
	shortest, longest := lengths(re)
	if shortest < least || most >= 0 && longest > most {
		return 0, refuse(n, keyword, "it allows lengths that minLength or maxLength do not: "+
			"the two are not supported together unless the pattern keeps to them")
	}
	end, err := c.g.pattern(c.g.literal(from, `"`), re)
	if err != nil {
		return 0, refuse(n, keyword, "%v", err)
	}
	return c.g.literal(end, `"`), nil
}

// number appends a number inside its bounds.
func (c *compiler) number(from int, n *node, integer bool) (int, error) {
	s, bounded := span{integer: integer}, ""
	for _, k := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		v := n.get(k)
		if v == nil {
			continue
		}
		if kind := v.kind(); kind != "integer" && kind != "number" {
			return 0, refuse(n, k, "it must be a number, not %.40s", v.compact())
		}
		x, decimals, ok := bound(v.raw)
		if !ok {
			return 0, refuse(n, k, "%.40s has more digits than are supported", v.raw)
		}
		bounded = k
		s.decimals = max(s.decimals, min(decimals, math.MaxInt16))
		open := k[0] == 'e'
		if k == "minimum" || k == "exclusiveMinimum" {
			if s.low == nil || x.Cmp(s.low) > 0 || x.Cmp(s.low) == 0 && open {
				s.low, s.lowOpen = x, open
			}
		} else if s.high == nil || x.Cmp(s.high) < 0 || x.Cmp(s.high) == 0 && open {
			s.high, s.highOpen = x, open
		}
	}
	if bounded == "" {
		return c.g.plain(from, !integer), nil
	}
	to, ok := c.g.within(from, s)
	if !ok {
		return 0, refuse(n, bounded, "no number is left, or none with few enough decimals")
	}
	return to, nil
}
