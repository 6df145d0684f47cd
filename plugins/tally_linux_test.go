package plugins

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"
)

// tally is what became of the mutants of one part, or of all.
type tally struct {
	Seed  uint64
	Parts int
	Done  int // mutants of this part
	// Ends counts mutants by language and fate, those whose instructions were changed first.
	Ends      map[string]*[2][fates]int
	Apart     int            // of them went through a compiling process
	Kinds     map[string]int // how they ended
	Work      time.Duration
	Longest   map[string]time.Duration // processor time of one mutant, by language
	LongestAt map[string]int
	Grown     int // bytes, at the most
}

// newTally is the tally of a part that did nothing.
func newTally(seed uint64, parts int) *tally {
	return &tally{Seed: seed, Parts: parts, Ends: map[string]*[2][fates]int{},
		Kinds: map[string]int{}, Longest: map[string]time.Duration{}, LongestAt: map[string]int{}}
}

// count adds one mutant.
func (c *tally) count(i int, m mutant, l life, took time.Duration) {
	kind := 0
	if m.bytes {
		kind = 1
	}
	if c.Ends[m.lang] == nil {
		c.Ends[m.lang] = new([2][fates]int)
	}
	c.Ends[m.lang][kind][l.fate]++
	c.Kinds[l.kind]++
	c.Done++
	if m.apart && l.fate != refused {
		c.Apart++
	}
	c.Work += took
	if took > c.Longest[m.lang] {
		c.Longest[m.lang], c.LongestAt[m.lang] = took, i
	}
}

// merge adds another part.
func (c *tally) merge(d *tally) {
	for lang, ends := range d.Ends {
		if c.Ends[lang] == nil {
			c.Ends[lang] = new([2][fates]int)
		}
		for i := range ends {
			for f := range ends[i] {
				c.Ends[lang][i][f] += ends[i][f]
			}
		}
		if d.Longest[lang] > c.Longest[lang] {
			c.Longest[lang], c.LongestAt[lang] = d.Longest[lang], d.LongestAt[lang]
		}
	}
	for kind, n := range d.Kinds {
		c.Kinds[kind] += n
	}
	c.Done, c.Apart, c.Work = c.Done+d.Done, c.Apart+d.Apart, c.Work+d.Work
	c.Grown = max(c.Grown, d.Grown)
}

// called is how many of a language's mutants, or of all, were changed in instructions and called.
func (c *tally) called(lang string) (n int) {
	for l, ends := range c.Ends {
		if lang == "" || l == lang {
			n += ends[0][called] + ends[0][loaded]
		}
	}
	return n
}

// The languages that mutants must be made of.
var languages = []string{"c", "rust", "go", "assemblyscript", "zig", "wat"}

// judge says what a run lacks: at least a tenth of it changed in instructions and called, of each
// language a thousandth.
func (c *tally) judge(t *testing.T, want int) {
	if c.Done < want {
		t.Errorf("only %d of %d mutants were made", c.Done, want)
	}
	if got := c.called(""); got < want/10 {
		t.Errorf("only %d were changed in instructions and called, not %d", got, want/10)
	}
	for _, lang := range languages {
		if got := c.called(lang); got < want/1000 {
			t.Errorf("only %d of %s were changed in instructions and called, not %d", got, lang,
				want/1000)
		}
	}
	if c.Grown > mutantRoom {
		t.Errorf("a process grew by %d MiB", c.Grown>>20)
	}
}

func (c *tally) report(t *testing.T) {
	for _, lang := range slices.Sorted(maps.Keys(c.Ends)) {
		for i, kind := range []string{"instructions", "bytes"} {
			n := c.Ends[lang][i]
			t.Logf("%-14s %-12s %8d made: %8d refused, %7d not compiled, %7d called, "+
				"%7d loaded", lang, kind, n[0]+n[1]+n[2]+n[3], n[0], n[1], n[2], n[3])
		}
		t.Logf("%-14s the longest took %v of processor time: mutant %d", lang, c.Longest[lang],
			c.LongestAt[lang])
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
		t.Logf("%8d %s", c.Kinds[kind], kind)
	}
	line, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "mutants %s\n", line)
}
