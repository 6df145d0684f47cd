package config

import (
	"strings"

	"github.com/BurntSushi/toml"
)

// place is a range [start, end) of bytes in the file, or with env set the environment variable of
// that name.
type place struct {
	start, end int
	env        string
}

// node is where one key or table of the file stands; the tree of nodes has the shape of the decoded
// file, so that both are walked side by side. The library gives values without positions.
type node struct {
	key    place // its name, where it first appears: in a header or before "="
	value  place // its value; of a table with a header, that header with its brackets
	name   place // the whole dotted name in its header
	header bool  // opened by a [table] or [[table]] line
	set    bool  // given by "key = value"
	kids   map[string]*node
	items  []*node
}

// repeat is a key or table that the file gives a second time, which TOML forbids.
type repeat struct {
	path          string // dotted
	first, second place
	table         bool
}

// maxNesting bounds arrays in arrays, tables in tables and the parts of a dotted name. Nothing of
// ours needs four; the parser behind recurses, so that depth must be bounded before it runs.
const maxNesting = 32

// scanner finds the places. It is lenient: what it does not understand it steps over, because the
// library judges the syntax. It always ends: each turn of each loop consumes at least one byte.
type scanner struct {
	text    string
	at      int
	root    *node
	repeats []repeat
	deep    *place // the first value nested deeper than maxNesting
}

// scan reads the whole text.
func scan(text string) *scanner {
	s := &scanner{text: text, root: &node{}}
	table, path := s.root, ""
	for s.skipBlank(); s.at < len(s.text); s.skipBlank() {
		if s.text[s.at] == '[' {
			table, path = s.header()
		} else {
			s.assignment(table, path, 0)
		}
		s.skipLine()
	}
	return s
}

// header reads a [table] or [[table]] line and returns its node and dotted name.
func (s *scanner) header() (*node, string) {
	start := s.at
	list := strings.HasPrefix(s.text[s.at:], "[[")
	s.at++
	if list {
		s.at++
	}
	parts, places := s.dotted("]")
	for i := 0; i < 2 && strings.HasPrefix(s.text[s.at:], "]"); i++ {
		s.at++
	}
	if len(parts) == 0 {
		return &node{}, ""
	}
	whole := place{start: start, end: s.at}
	n := s.root
	for i, part := range parts[:len(parts)-1] {
		n = n.kid(part, places[i]).last()
	}
	name := strings.Join(parts, ".")
	n = n.kid(parts[len(parts)-1], places[len(places)-1])
	names := place{start: places[0].start, end: places[len(places)-1].end}
	if list {
		item := &node{key: names, value: whole, name: names, header: true}
		if n.header && n.items == nil {
			s.repeats = append(s.repeats, repeat{name, n.name, names, true})
		}
		n.header, n.value, n.name = true, whole, names
		n.items = append(n.items, item)
		return item, name
	}
	if n.header || n.set {
		s.repeats = append(s.repeats, repeat{name, n.name, names, true})
		return n, name
	}
	n.header, n.value, n.name = true, whole, names
	return n, name
}

// kid is the child of that name, made at p when there is none.
func (n *node) kid(name string, p place) *node {
	if k := n.kids[name]; k != nil {
		return k
	}
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	k := &node{key: p, value: p, name: p}
	n.kids[name] = k
	return k
}

// child is the node of that name. Where the scan found none, which tests rule out for valid TOML,
// the parent stands in, so that a report is at worst a little less exact.
func (n *node) child(name string) *node {
	if k := n.kids[name]; k != nil {
		return k
	}
	return &node{key: n.key, value: n.value, name: n.name, set: n.set}
}

// element is the node of item i, likewise.
func (n *node) element(i int) *node {
	if i < len(n.items) {
		return n.items[i]
	}
	return &node{key: n.key, value: n.value, name: n.name, set: n.set}
}

// last is the table that a header below n extends: of a list, its last element.
func (n *node) last() *node {
	if len(n.items) > 0 {
		return n.items[len(n.items)-1]
	}
	return n
}

// assignment reads "key = value" into table.
func (s *scanner) assignment(table *node, path string, depth int) {
	parts, places := s.dotted("=")
	s.skipSpace()
	if len(parts) == 0 || s.at >= len(s.text) || s.text[s.at] != '=' {
		return
	}
	s.at++
	for i, part := range parts {
		table = table.kid(part, places[i])
		path = strings.TrimPrefix(path+"."+part, ".")
	}
	here := places[len(places)-1]
	fresh := table
	if table.set || table.header {
		s.repeats = append(s.repeats, repeat{path, table.key, here, false})
		fresh = &node{}
	}
	s.value(fresh, path, depth)
	fresh.set = true
}

// value reads one value into n.
func (s *scanner) value(n *node, path string, depth int) {
	s.skipSpace()
	start := s.at
	switch {
	case s.at >= len(s.text):
	case depth >= maxNesting:
		s.tooDeep(place{start: start, end: start + 1})
	case s.text[s.at] == '"' || s.text[s.at] == '\'':
		s.quoted()
	case s.text[s.at] == '[':
		s.array(n, path, depth)
	case s.text[s.at] == '{':
		s.inline(n, path, depth)
	default:
		s.bare()
	}
	n.value = place{start: start, end: s.at}
}

// tooDeep ends the scan: the file is refused.
func (s *scanner) tooDeep(p place) {
	if s.deep == nil {
		s.deep = &p
	}
	s.at = len(s.text)
}

// array reads [ … ], over several lines.
func (s *scanner) array(n *node, path string, depth int) {
	s.at++
	for s.skipBlank(); s.at < len(s.text) && s.text[s.at] != ']'; s.skipBlank() {
		if s.text[s.at] == ',' {
			s.at++
			continue
		}
		item, start := &node{set: true}, s.at
		s.value(item, path, depth+1)
		item.key = item.value
		n.items = append(n.items, item)
		if s.at == start {
			s.at++
		}
	}
	s.at = min(s.at+1, len(s.text))
}

// inline reads { … }.
func (s *scanner) inline(n *node, path string, depth int) {
	s.at++
	for s.skipBlank(); s.at < len(s.text) && s.text[s.at] != '}'; s.skipBlank() {
		start := s.at
		if s.text[s.at] == ',' {
			s.at++
			continue
		}
		s.assignment(n, path, depth+1)
		if s.at == start {
			s.at++
		}
	}
	s.at = min(s.at+1, len(s.text))
}

// dotted reads a name of one or more parts up to stop.
func (s *scanner) dotted(stop string) (parts []string, places []place) {
	for s.at < len(s.text) {
		s.skipSpace()
		start := s.at
		part := s.part(stop)
		if s.at == start {
			return parts, places
		}
		parts, places = append(parts, part), append(places, place{start: start, end: s.at})
		if len(parts) > maxNesting {
			s.tooDeep(place{start: start, end: s.at})
			return nil, nil
		}
		s.skipSpace()
		if s.at >= len(s.text) || s.text[s.at] != '.' {
			return parts, places
		}
		s.at++
	}
	return parts, places
}

// part reads one part of a name, bare or quoted, and returns it as it is meant.
func (s *scanner) part(stop string) string {
	start := s.at
	if s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
		s.quoted()
		return unquote(s.text[start:s.at])
	}
	for s.at < len(s.text) && !strings.ContainsRune(". \t\r\n#"+stop, rune(s.text[s.at])) {
		s.at++
	}
	return s.text[start:s.at]
}

// unquote leaves the escapes to the library.
func unquote(quoted string) string {
	var v struct{ V string }
	if _, err := toml.Decode("V = "+quoted, &v); err != nil {
		return quoted
	}
	return v.V
}

// quoted reads a string of any of the four kinds.
func (s *scanner) quoted() {
	quote := s.text[s.at : s.at+1]
	fence := strings.Repeat(quote, 3)
	if strings.HasPrefix(s.text[s.at:], fence) {
		s.at += 3
		for s.at < len(s.text) && !strings.HasPrefix(s.text[s.at:], fence) {
			s.step(quote)
		}
		s.at = min(s.at+3, len(s.text))
		// Up to two quotes may stand before the closing fence and belong to the string.
		for i := 0; i < 2 && strings.HasPrefix(s.text[s.at:], quote); i++ {
			s.at++
		}
		return
	}
	s.at++
	for s.at < len(s.text) && s.text[s.at] != quote[0] && s.text[s.at] != '\n' {
		s.step(quote)
	}
	if s.at < len(s.text) && s.text[s.at] == quote[0] {
		s.at++
	}
}

// step passes one byte of a string, or an escape and what it escapes.
func (s *scanner) step(quote string) {
	if quote == `"` && s.text[s.at] == '\\' && s.at+1 < len(s.text) && s.text[s.at+1] != '\n' {
		s.at++
	}
	s.at++
}

// bare reads a number, a boolean, a date or what stands in place of one, without the white space
// after it.
func (s *scanner) bare() {
	start := s.at
	for s.at < len(s.text) && !strings.ContainsRune(",]}#\r\n", rune(s.text[s.at])) {
		s.at++
	}
	s.at = start + len(strings.TrimRight(s.text[start:s.at], " \t"))
}

func (s *scanner) skipSpace() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t') {
		s.at++
	}
}

// skipBlank passes white space, line ends and comments.
func (s *scanner) skipBlank() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		case '#':
			s.skipLine()
		default:
			return
		}
	}
}

func (s *scanner) skipLine() {
	if i := strings.IndexByte(s.text[s.at:], '\n'); i >= 0 {
		s.at += i + 1
	} else {
		s.at = len(s.text)
	}
}
