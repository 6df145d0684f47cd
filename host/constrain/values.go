package constrain

// The parts that every form is made of. Each function appends to the graph at from and returns
// where the part ends.

// character is a rule for one character of a JSON string, in the shortest of its spellings: itself,
// or a backslash and a letter. Surrogates and \u are left out.
func (g *graph) character() *rule {
	return g.rule("character", func(from int) int {
		to := g.vertex()
		g.edge(from, to, 0x20, '!')
		g.edge(from, to, '#', '[')
		g.edge(from, to, ']', '~')
		escape := g.vertex()
		g.edge(from, escape, '\\', '\\')
		for _, c := range []byte(`"\/bfnrt`) {
			g.edge(escape, to, c, c)
		}
		tail := g.vertex() // One more byte.
		g.edge(tail, to, 0x80, 0xBF)
		tails := g.vertex() // Two more.
		g.edge(tails, tail, 0x80, 0xBF)
		g.edge(from, tail, 0xC2, 0xDF)
		for _, lead := range []struct{ first, last, low, high byte }{
			{0xE0, 0xE0, 0xA0, 0xBF},
			{0xE1, 0xEC, 0x80, 0xBF},
			{0xED, 0xED, 0x80, 0x9F},
			{0xEE, 0xEF, 0x80, 0xBF},
		} {
			second := g.vertex()
			g.edge(from, second, lead.first, lead.last)
			g.edge(second, tail, lead.low, lead.high)
		}
		for _, lead := range []struct{ first, last, low, high byte }{
			{0xF0, 0xF0, 0x90, 0xBF},
			{0xF1, 0xF3, 0x80, 0xBF},
			{0xF4, 0xF4, 0x80, 0x8F},
		} {
			second := g.vertex()
			g.edge(from, second, lead.first, lead.last)
			g.edge(second, tails, lead.low, lead.high)
		}
		return to
	})
}

// text appends a string of at least least characters, and at most most unless that is negative.
func (g *graph) text(from, least, most int) int {
	at := g.literal(from, `"`)
	end := g.vertex()
	one := g.character()
	first := at // with nothing needed any more
	for i := 0; ; i++ {
		if i == least {
			first = at
		}
		if i >= least {
			g.edge(at, end, '"', '"')
			if i > least && most-i >= g.words.widest {
				g.alike[at] = first
			}
		}
		if i == most {
			return end
		}
		if most < 0 && i >= least {
			g.call(at, at, one)
			return end
		}
		next := g.vertex()
		g.call(at, next, one)
		at = next
	}
}

// anyText is a rule for any string.
func (g *graph) anyText() *rule {
	return g.rule("string", func(from int) int { return g.text(from, 0, -1) })
}

// anyValue is a rule for any JSON value.
func (g *graph) anyValue() *rule {
	return g.rule("value", func(from int) int {
		to := g.vertex()
		g.call(from, to, g.anyObject())
		g.call(from, to, g.anyArray())
		g.call(from, to, g.anyText())
		g.skip(g.plain(from, true), to)
		for _, word := range []string{"true", "false", "null"} {
			g.skip(g.literal(from, word), to)
		}
		return to
	})
}

// anyObject is a rule for any JSON object.
func (g *graph) anyObject() *rule {
	return g.rule("object", func(from int) int {
		first := g.literal(from, "{")
		end, key, colon, after := g.vertex(), g.vertex(), g.vertex(), g.vertex()
		g.edge(first, end, '}', '}')
		g.skip(first, key)
		g.call(key, colon, g.anyText())
		g.call(g.literal(colon, ":"), after, g.anyValue())
		g.edge(after, key, ',', ',')
		g.edge(after, end, '}', '}')
		return end
	})
}

// anyArray is a rule for any JSON array.
func (g *graph) anyArray() *rule {
	return g.rule("array", func(from int) int {
		return g.list(from, listOf{rest: g.anyValue, most: -1})
	})
}

// listOf describes an array: a rule for each of the first elements, one for the others, and how
// many there may be; most is negative without a bound. rest is nil when there are no others.
type listOf struct {
	first       []*rule
	rest        func() *rule
	least, most int
}

// list appends an array.
func (g *graph) list(from int, l listOf) int {
	at, end := g.literal(from, "["), g.vertex()
	for i := 0; ; i++ {
		if i >= l.least && (i == 0 || i >= len(l.first) || i == l.most) {
			g.edge(at, end, ']', ']')
		}
		if i == l.most || i >= len(l.first) && l.rest == nil {
			return end
		}
		if i > 0 {
			next := g.vertex()
			g.edge(at, next, ',', ',')
			if l.most < 0 && i > l.least && i > len(l.first) {
				// From here on every element is like the one before.
				g.call(next, at, l.rest())
				return end
			}
			at = next
		}
		one := g.vertex()
		if i < len(l.first) {
			g.call(at, one, l.first[i])
		} else {
			g.call(at, one, l.rest())
		}
		at = one
	}
}
