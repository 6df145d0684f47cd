package constrain

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
)

// Form is a compiled form with what its machine has learnt so far. Many outputs may follow one at
// a time or at once.
type Form struct {
	graph *graph
	words *Vocabulary

	mu     sync.Mutex
	links  map[link]*link
	states map[string]*state
	linked uint32
	masks  int // bytes
	start  *state
}

// link is a place in the automaton and where its rule was called from: a stack. Equal stacks are
// one link, as long as the machine does not forget.
type link struct {
	at   int
	up   *link
	id   uint32
	rest int // least tokens to the end of everything
}

// state is all places an output can be at: the automaton made deterministic, state by state as they
// are reached.
type state struct {
	links []*link // those with edges, by id
	ends  bool    // the output may end here
	least int
	next  [16]*[16]*state
	mask  []uint64 // a bit for each token that may come; nil before it was asked for
	most  int      // the largest least after a token of the mask
}

// dead is where no output goes on.
var dead = &state{least: unreachable}

func newForm(g *graph) *Form {
	f := &Form{graph: g, words: g.words}
	f.forget()
	return f
}

// forget drops what the machine has learnt. States that outputs stand at stay good.
func (f *Form) forget() {
	f.links, f.states, f.masks = map[link]*link{}, map[string]*state{}, 0
	f.start = f.close([]*link{f.link(f.graph.start, nil)})
}

func (f *Form) link(at int, up *link) *link {
	key := link{at: at, up: up}
	if l := f.links[key]; l != nil {
		return l
	}
	f.linked++
	l := &link{at: at, up: up, id: f.linked, rest: f.graph.vertices[at].least}
	if up != nil {
		l.rest = min(l.rest+up.rest, unreachable)
	}
	f.links[key] = l
	return l
}

// close makes a state of places and all that can be reached from them without a byte.
func (f *Form) close(from []*link) *state {
	s := &state{least: unreachable}
	seen := map[*link]bool{}
	for len(from) > 0 {
		l := from[len(from)-1]
		from = from[:len(from)-1]
		if seen[l] {
			continue
		}
		seen[l] = true
		v := &f.graph.vertices[l.at]
		if len(v.edges) > 0 {
			s.links = append(s.links, l)
			s.least = min(s.least, l.rest)
		}
		for _, to := range v.skips {
			from = append(from, f.link(to, l.up))
		}
		for _, c := range v.calls {
			from = append(from, f.link(c.rule.start, f.link(c.back, l.up)))
		}
		switch {
		case !v.end:
		case l.up == nil:
			s.ends, s.least = true, 0
		default:
			from = append(from, l.up)
		}
	}
	if len(s.links) > maxPlaces {
		// What is left out could come, and does not: those stay that end soonest.
		slices.SortFunc(s.links, func(a, b *link) int {
			return cmp.Or(cmp.Compare(a.rest, b.rest), cmp.Compare(a.at, b.at))
		})
		s.links = s.links[:maxPlaces]
	}
	return f.known(s)
}

// known is the state that has the same places, or s, which is kept from now on.
func (f *Form) known(s *state) *state {
	if len(s.links) == 0 && !s.ends {
		return dead
	}
	slices.SortFunc(s.links, func(a, b *link) int { return int(a.id) - int(b.id) })
	key := make([]byte, 0, 4*len(s.links)+1)
	for _, l := range s.links {
		key = binary.LittleEndian.AppendUint32(key, l.id)
	}
	if s.ends {
		key = append(key, 1)
	}
	if known := f.states[string(key)]; known != nil {
		return known
	}
	f.states[string(key)] = s
	return s
}

// alike is a state at which the same tokens may come, the same for many states: long strings have a
// state for each length, and what may come depends on it near their end only.
func (f *Form) alike(s *state) *state {
	if len(f.graph.alike) == 0 {
		return s
	}
	from := make([]*link, len(s.links))
	for i, l := range s.links {
		from[i] = f.alikeLink(l)
	}
	other := &state{ends: s.ends, least: unreachable}
	for _, l := range from {
		if !slices.Contains(other.links, l) {
			other.links = append(other.links, l)
			other.least = min(other.least, l.rest)
		}
	}
	if other.ends {
		other.least = 0
	}
	return f.known(other)
}

func (f *Form) alikeLink(l *link) *link {
	if l == nil {
		return nil
	}
	at, other := f.graph.alike[l.at]
	if !other {
		at = l.at
	}
	return f.link(at, f.alikeLink(l.up))
}

// step is where a byte leads.
func (f *Form) step(s *state, b byte) *state {
	page := s.next[b>>4]
	if page == nil {
		page = new([16]*state)
		s.next[b>>4] = page
	}
	if to := page[b&15]; to != nil {
		return to
	}
	var to []*link
	for _, l := range s.links {
		for _, e := range f.graph.vertices[l.at].edges {
			if e.low <= b && b <= e.high {
				to = append(to, f.link(e.to, l.up))
			}
		}
	}
	next := dead
	if len(to) > 0 {
		next = f.close(to)
	}
	page[b&15] = next
	return next
}

// walk calls allow with every token that may come at s so that at most left tokens can end the
// output after it, and returns the largest least of the states behind all tokens that may come.
func (f *Form) walk(s *state, left int, allow func(id int32)) (most int) {
	path := make([]*state, 1, 64)
	path[0] = s
	for i := range f.words.words {
		w := &f.words.words[i]
		if w.shared < len(path)-1 {
			path = path[:w.shared+1]
		}
		at := path[len(path)-1]
		if at == dead && len(path)-1 <= w.shared {
			continue // A prefix that this word has too leads nowhere.
		}
		for at != dead && len(path) <= len(w.text) {
			at = f.step(at, w.text[len(path)-1])
			path = append(path, at)
		}
		if at == dead {
			continue
		}
		most = max(most, at.least)
		if at.least <= left {
			allow(w.id)
		}
	}
	return most
}
