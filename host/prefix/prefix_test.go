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
