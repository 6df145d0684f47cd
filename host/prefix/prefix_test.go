package prefix

import (
	"fmt"
	"testing"

	"github.com/kvrelay/engine/host/kvcache"
)

// wide is a tree of one-page prompts that all begin alike.
func wide(b *testing.B, pages int) *Cache {
	b.Helper()
	pool := kvcache.NewPool(pages)
	c := New(pool, Options{PageSize: 16, Budget: -1})
	for i := range pages {
		page, _ := pool.Take()
		table := []kvcache.PageID{page}
		var path Path
		c.Publish(&path, prompt(i), table, true)
		c.Release(path, table, Keep, 0)
	}
	if err := c.Check(); err != nil {
		b.Fatal(err)
	}
	return c
}

// prompt has 17 tokens and parts from others in its last ones.
func prompt(i int) []int32 {
	tokens := make([]int32, 16, 17)
	for k := range 4 {
		tokens[15-k] = int32(i >> (8 * k) & 255)
	}
	return tokens
}

// BenchmarkWide: looking up one of many siblings costs their logarithm, evicting one that of all.
func BenchmarkWide(b *testing.B) {
	for _, pages := range []int{100, 10_000, 100_000} {
		c := wide(b, pages)
		i := 0
		b.Run(fmt.Sprintf("peek/siblings=%d", pages), func(b *testing.B) {
			for b.Loop() {
				i++
				if c.Peek(append(prompt(i%pages), 0)) != 16 {
					b.Fatal("not found")
				}
			}
		})
		b.Run(fmt.Sprintf("replace/siblings=%d", pages), func(b *testing.B) {
			for b.Loop() {
				i++
				c.Reserve(1)
				page, _ := c.pool.Take()
				table := []kvcache.PageID{page}
				var path Path
				c.Publish(&path, prompt(pages+i), table, true)
				c.Release(path, table, Keep, 0)
			}
		})
	}
}

// TestScenario81: what is added, extended and removed again leaves all pages free and nothing in
// the tree; a path without tokens takes nothing.
func TestScenario81FreeCapacity(t *testing.T) {
	const pages = 40
	pool := kvcache.NewPool(pages)
	c := New(pool, Options{PageSize: 16, Budget: -1})
	free := func(when string) {
		t.Helper()
		if err := c.Check(); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if n := c.Counts(); pool.Free() != pages || n != (Counts{Evicted: n.Evicted}) {
			t.Errorf("%s: %d pages are free of %d, the tree has %+v", when, pool.Free(), pages, n)
		}
	}
	for range 10 { // Without tokens.
		var path Path
		c.Publish(&path, nil, nil, true)
		c.Release(path, nil, Keep, 0)
	}
	free("after empty paths")
	tokens := make([]int32, 216)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	for _, fate := range []Fate{Drop, Keep, Demote} {
		var path Path
		var table []kvcache.PageID
		for n := range tokens { // 16 first, then 200 more, one by one.
			if n%16 == 0 {
				page, _ := pool.Take()
				table = append(table, page)
			}
			if n >= 15 {
				c.Publish(&path, tokens[:n+1], table, true)
			}
		}
		if c.Peek(append(tokens, 1)) != len(tokens) {
			t.Fatal("what was added is not found")
		}
		c.Release(path, table, fate, 0)
		if fate != Drop {
			c.Reset()
		}
		free("after an extension of 200")
	}
}
