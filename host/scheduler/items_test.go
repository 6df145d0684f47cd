package scheduler

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/batch"
)

// Texts of the random test mark vectors by tokens from firstVector on: item k, which has k+1
// positions, is firstVector + 10*k + 0, 1, … Each vector is that very number.
const firstVector = 1000

func appendItem(text []int32, k int) []int32 {
	for i := range k + 1 {
		text = append(text, int32(firstVector+10*k+i))
	}
	return text
}

// vectors makes a prompt and its items of a text. What is left of an item that was cut off becomes
// tokens.
func vectors(text []int32) (prompt []int32, items []batch.Embedding) {
	for at := 0; at < len(text); {
		k := int(text[at]-firstVector) / 10
		if text[at] < firstVector {
			prompt, at = append(prompt, text[at]), at+1
			continue
		}
		if text[at] != int32(firstVector+10*k) || len(text)-at < k+1 ||
			text[at+k] != text[at]+int32(k) {
			prompt, at = append(prompt, text[at]%3), at+1
			continue
		}
		items = append(items, itemOf(len(prompt), k))
		prompt = append(prompt, text[at:at+k+1]...)
		at += k + 1
	}
	return prompt, items
}

// itemOf is item k at a position.
func itemOf(start, k int) batch.Embedding {
	e := batch.Embedding{Start: start, Rows: k + 1, Digest: sha256.Sum256([]byte(fmt.Sprint(k)))}
	for _, code := range appendItem(nil, k) {
		e.Values = append(e.Values, float32(code))
	}
	return e
}

// whole is at, or the start of the item around it.
func whole(items []batch.Embedding, at int) int {
	for _, e := range items {
		if e.Start < at && at < e.Start+e.Rows {
			return e.Start
		}
	}
	return at
}

// mixed makes a text of tokens and vectors: "mixed a 10 cat:576 5" are 10 new tokens, the item cat
// of 576 vectors, and 5 tokens. An item of the same name and size is the same one everywhere.
func (sc *script) mixed(words []string) string {
	name := words[0]
	for _, word := range words[1:] {
		at := len(sc.texts[name])
		item, size, isItem := strings.Cut(word, ":")
		if !isItem {
			n, _ := strconv.Atoi(word)
			sc.text([]string{"part", word})
			sc.texts[name] = append(sc.texts[name], sc.texts["part"][:n]...)
			continue
		}
		rows, _ := strconv.Atoi(size)
		e := batch.Embedding{Start: at, Rows: rows, Values: make([]float32, rows),
			Digest: sha256.Sum256([]byte(word))}
		for i := range e.Values {
			e.Values[i] = float32(e.Digest[0])*256 + float32(len(item)) + float32(i)
		}
		sc.items[name] = append(sc.items[name], e)
		sc.texts[name] = append(sc.texts[name], make([]int32, rows)...)
	}
	return ""
}

// peek says how much of a text the prefix cache holds.
func (sc *script) peek(text string) string {
	q := &sequence{tokens: slices.Clone(sc.texts[text]), embeds: sc.items[text]}
	sc.s.nameItems(q)
	found := sc.s.peek(q)
	sc.s.unnameItems(q)
	return fmt.Sprintf("%d of %d", found, len(q.tokens))
}

// TestNumbersRunOut: when all numbers were given they start over, past those in use, and what was
// known by the others is not found any more.
func TestNumbersRunOut(t *testing.T) {
	s, err := New(Options{PageSize: 4, Pages: 40, MaxModelLen: 100, PrefixPages: -1,
		Limits: Limits{MaxSeqs: 4, TokenBudget: 64, MaxQueue: 8}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := func(id SequenceID, k int) int {
		t.Helper()
		prompt := append(appendItem(nil, k), 1, 2, 3)
		err := s.Submit(Request{ID: id, Prompt: prompt, Embeds: []batch.Embedding{itemOf(0, k)},
			MaxNew: 9})
		if err != nil {
			t.Fatal(err)
		}
		p := s.Plan(0, StepCosts{})
		s.Commit(p, make([]int32, len(p.Samples)), 0)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		info, _ := s.Info(id)
		return info.Cached
	}
	end := func(id SequenceID) {
		t.Helper()
		if err := s.Finish(id, ReasonStop); err != nil {
			t.Fatal(err)
		}
	}
	run(1, 9) // It keeps number -2 throughout.
	run(2, 8)
	end(2)
	if cached := run(3, 8); cached != 11 {
		t.Fatalf("%d positions were found, want all but the last", cached)
	}
	end(3)
	s.names.last = math.MinInt32
	if cached := run(4, 7); cached != 0 {
		t.Errorf("%d positions of a new item were found", cached)
	}
	if got := s.byID[4].tokens[0]; got != -3 {
		t.Errorf("the new item has number %d, want the first that is free", got)
	}
	end(4)
	if cached := run(5, 8); cached != 0 {
		t.Errorf("%d positions were found of what was forgotten", cached)
	}
	if cached := run(6, 9); cached != 12 {
		t.Errorf("%d positions were found of an item in use, want 12", cached)
	}
}

// TestPrefixHashOfItems: prompts that begin with other vectors do not begin alike.
func TestPrefixHashOfItems(t *testing.T) {
	s := &Scheduler{options: Options{PageSize: 4}}
	hash := func(k int, more ...int32) uint64 {
		prompt := append([]int32{1, 2}, make([]int32, k+1)...)
		return s.prefixHash(&Request{Prompt: append(prompt, more...),
			Embeds: []batch.Embedding{itemOf(2, k)}})
	}
	plain := s.prefixHash(&Request{Prompt: []int32{1, 2, 0, 0, 3, 4, 5, 6}})
	if a, b, c := hash(1, 3, 4, 5, 6), hash(1, 3, 4, 5, 6), hash(1, 3, 4, 5, 7); a != b ||
		a == c || a == plain {
		t.Errorf("%x and %x of one prompt, %x of another, %x without vectors", a, b, c, plain)
	}
	if s.prefixHash(&Request{Prompt: make([]int32, 40), Embeds: []batch.Embedding{
		{Start: 0, Rows: 39, Digest: [32]byte{1}}}}) == s.prefixHash(&Request{
		Prompt: make([]int32, 40), Embeds: []batch.Embedding{
			{Start: 0, Rows: 39, Digest: [32]byte{2}}}}) {
		t.Error("the vectors do not count")
	}
}

// TestItemsAreForgotten: numbers are kept for so many items and no more.
func TestItemsAreForgotten(t *testing.T) {
	n := newNames()
	digest := func(k int) [32]byte { return sha256.Sum256(fmt.Append(nil, k)) }
	first, _ := n.take(digest(0))
	n.release(digest(0))
	if again, _ := n.take(digest(0)); again != first {
		t.Errorf("number %d, before it was %d", again, first)
	}
	for k := 1; k <= 2*keptNames; k++ {
		n.take(digest(k))
		n.release(digest(k))
		if len(n.known) > keptNames+1 || len(n.numbers) != len(n.known) ||
			len(n.idle) > keptNames {
			t.Fatalf("%d items known by %d numbers, %d idle", len(n.known), len(n.numbers),
				len(n.idle))
		}
	}
	if still, _ := n.take(digest(0)); still != first {
		t.Errorf("an item in use was forgotten")
	}
}
