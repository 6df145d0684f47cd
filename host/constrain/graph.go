package constrain

import (
	"maps"
	"slices"
)

// vertex is a point of an automaton. Edges consume a byte; skips consume nothing; a call runs a
// rule and goes on at back. The end of a rule goes on wherever it was called from.
type vertex struct {
	edges []edge
	skips []int
	calls []rcall
	end   bool
	// least is how many tokens are enough from here to the end of the rule.
	least int
}

type edge struct {
	low, high byte
	to        int
}

type rcall struct {
	rule *rule
	back int
}

// rule is a part of the automaton that is entered from several places, itself included.
type rule struct {
	name  string // a JSON pointer, or what it is
	start int
}

// run is a literal: vertex points[i] leads to points[i+1] by text[i].
type run struct {
	points []int
	text   string
}

// graph is an automaton while it is built.
type graph struct {
	vertices []vertex
	runs     []run
	start    int
	rules    map[string]*rule
	words    *Vocabulary
	// alike names, for some vertices, another one at which the same tokens may come.
	alike map[int]int
}

func newGraph(v *Vocabulary) *graph {
	return &graph{rules: map[string]*rule{}, words: v, alike: map[int]int{}}
}

// fullError is raised inside the compiler when an automaton grows too large.
type fullError struct{}

func (g *graph) vertex() int {
	if len(g.vertices) >= maxVertices {
		panic(fullError{})
	}
	g.vertices = append(g.vertices, vertex{least: unreachable})
	return len(g.vertices) - 1
}

func (g *graph) edge(from, to int, low, high byte) {
	g.vertices[from].edges = append(g.vertices[from].edges, edge{low, high, to})
}

func (g *graph) skip(from, to int) { g.vertices[from].skips = append(g.vertices[from].skips, to) }

func (g *graph) call(from, to int, r *rule) {
	g.vertices[from].calls = append(g.vertices[from].calls, rcall{r, to})
}

// literal appends a text and returns where it ends.
func (g *graph) literal(from int, text string) int {
	r := run{points: []int{from}, text: text}
	for i := range len(text) {
		to := g.vertex()
		g.edge(from, to, text[i], text[i])
		r.points = append(r.points, to)
		from = to
	}
	if len(text) > 0 {
		g.runs = append(g.runs, r)
	}
	return from
}

// oneOf appends one of several texts. Texts that begin alike share their beginning, so that a state
// of the machine has few places however many texts there are.
func (g *graph) oneOf(from int, texts []string) (to int) {
	to, from = g.vertex(), g.behind(from)
	next := map[[2]int]int{} // vertex and byte → vertex
	for _, text := range texts {
		r := run{points: []int{from}, text: text}
		for i, at := 0, from; i < len(text); i++ {
			key := [2]int{at, int(text[i])}
			v, known := next[key]
			if !known {
				v = g.vertex()
				g.edge(at, v, text[i], text[i])
				next[key] = v
			}
			r.points = append(r.points, v)
			at = v
		}
		g.runs = append(g.runs, r)
		g.skip(r.points[len(text)], to)
	}
	return to
}

// rule returns the rule of a name; build makes it when it is new, and may refer to it.
func (g *graph) rule(name string, build func(from int) (to int)) *rule {
	if r := g.rules[name]; r != nil {
		return r
	}
	r := &rule{name: name, start: g.vertex()}
	g.rules[name] = r
	g.vertices[build(r.start)].end = true
	return r
}

// unreachable is more than any output has.
const unreachable = 1 << 30

// measure computes least for every vertex: the fewest tokens that are sure to exist, one for a
// byte, or one for any word inside a literal. Where it is more than 0, some token leads to a
// vertex with one less.
func (g *graph) measure() {
	v := g.words
	cover := make([][]int, 0, len(g.runs)) // per run and place, the lengths of words there
	for _, r := range g.runs {
		for i := range len(r.text) {
			var lengths []int
			for n := 1; n <= min(v.longest, len(r.text)-i); n++ {
				if v.known[r.text[i:i+n]] {
					lengths = append(lengths, n)
				}
			}
			cover = append(cover, lengths)
		}
	}
	writes := map[[2]byte]bool{}
	for i := range g.vertices {
		for _, e := range g.vertices[i].edges {
			writes[[2]byte{e.low, e.high}] = v.writes(e.low, e.high)
		}
	}
	for changed := true; changed; {
		changed = false
		for i := len(g.vertices) - 1; i >= 0; i-- {
			changed = g.relax(i, writes) || changed
		}
		at := len(cover)
		for i := len(g.runs) - 1; i >= 0; i-- {
			r := g.runs[i]
			at -= len(r.text)
			for k := len(r.text) - 1; k >= 0; k-- {
				for _, n := range cover[at+k] {
					changed = g.lower(r.points[k], 1+g.vertices[r.points[k+n]].least) || changed
				}
			}
		}
	}
}

// relax lowers a vertex's least by what its neighbours have.
func (g *graph) relax(i int, writes map[[2]byte]bool) bool {
	least := unreachable
	x := &g.vertices[i]
	if x.end {
		least = 0
	}
	for _, to := range x.skips {
		least = min(least, g.vertices[to].least)
	}
	for _, e := range x.edges {
		if writes[[2]byte{e.low, e.high}] {
			least = min(least, 1+g.vertices[e.to].least)
		}
	}
	for _, c := range x.calls {
		least = min(least, g.vertices[c.rule.start].least+g.vertices[c.back].least)
	}
	return g.lower(i, least)
}

func (g *graph) lower(i, least int) bool {
	if least >= g.vertices[i].least {
		return false
	}
	g.vertices[i].least = least
	return true
}

// leftRecursive returns a rule that can enter itself before a byte is consumed; nil when none can.
// Rules always consume a byte, so what follows a call needs no look.
func (g *graph) leftRecursive() *rule {
	for _, name := range slices.Sorted(maps.Keys(g.rules)) {
		r := g.rules[name]
		seen, open := map[int]bool{}, []int{r.start}
		for len(open) > 0 {
			i := open[len(open)-1]
			open = open[:len(open)-1]
			if seen[i] {
				continue
			}
			seen[i] = true
			open = append(open, g.vertices[i].skips...)
			for _, c := range g.vertices[i].calls {
				if c.rule == r {
					return r
				}
				open = append(open, c.rule.start)
			}
		}
	}
	return nil
}
