package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// naiveMerge is what byte-pair encoding means: join the leftmost pair of lowest rank until
// none is left.
func naiveMerge(m *bpe, word []int32) []int32 {
	word = slices.Clone(word)
	for {
		best, bestRank, bestID := -1, noMerge, int32(0)
		for i := 0; i+1 < len(word); i++ {
			if rank, id := m.pairs.find(word[i], word[i+1]); rank < bestRank {
				best, bestRank, bestID = i, rank, id
			}
		}
		if best < 0 {
			return word
		}
		word = slices.Replace(word, best, best+2, bestID)
	}
}

// randomModel builds a vocabulary over a few characters by random merges. Byte tokens take
// part in merges too.
func randomModel(t *testing.T, random *rand.Rand, byteLevel bool) *bpe {
	t.Helper()
	m := &modelPart{vocab: map[string]int32{}, unk: "?", byteFallback: !byteLevel, fuseUnk: true}
	var tokens []vocabToken
	add := func(name string) {
		m.vocab[name] = int32(len(tokens))
		tokens = append(tokens, vocabToken{text: name, known: true})
	}
	names := []string{"a", "b", "c", "▁", "é", "?"}
	if byteLevel {
		names = []string{"a", "b", "c"}
		m.unk = ""
	} else {
		names = append(names, "<0xC3>", "<0xA9>", "<0xE4>")
	}
	for _, name := range names {
		add(name)
	}
	for range 40 {
		left, right := random.IntN(len(tokens)), random.IntN(len(tokens))
		joined := tokens[left].text + tokens[right].text
		if _, ok := m.vocab[joined]; !ok && len(joined) < 40 {
			add(joined)
			m.merges = append(m.merges, merge{int32(left), int32(right), m.vocab[joined],
				uint32(len(m.merges))})
		}
	}
	random.Shuffle(len(m.merges), func(i, j int) {
		m.merges[i].rank, m.merges[j].rank = m.merges[j].rank, m.merges[i].rank
	})
	b, err := m.build(tokens, byteLevel)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMergeEqualsNaive compares the two ways of merging, and the splitting at borders, with
// the definition.
func TestMergeEqualsNaive(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 1))
	alphabet := []string{"a", "b", "c", "▁", "é", "x", "ä", "?"}
	for round := range 300 {
		byteLevel := round%3 == 0
		m := randomModel(t, random, byteLevel)
		var text strings.Builder
		for range random.IntN(120) {
			n := len(alphabet)
			if byteLevel {
				n = 3
			}
			text.WriteString(alphabet[random.IntN(n)])
		}
		symbols := m.symbols(text.String(), nil)
		want := naiveMerge(m, symbols)
		work := &scratch{}
		got := map[string][]int32{
			"split at borders": m.encode(text.String(), work, nil),
		}
		if len(symbols) > 0 {
			got["queue"] = m.mergeLong(slices.Clone(symbols), work, nil)
		}
		if len(symbols) <= shortWord {
			got["search"] = m.mergeShort(slices.Clone(symbols), nil)
		}
		for way, ids := range got {
			if !slices.Equal(ids, want) {
				t.Fatalf("seed %d, round %d, %s of %q:\n got %v\nwant %v", seed, round, way,
					text.String(), ids, want)
			}
		}
	}
}

// TestMergeWorkIsLinear counts what goes through the queue: a word of n symbols has n-1
// pairs, and each of at most n-1 merges makes two new ones.
func TestMergeWorkIsLinear(t *testing.T) {
	v := readVariants(t)
	tok := load(t, fstest.MapFS{mainFile: {Data: v.document(t, 0)}})
	for _, char := range []string{"a", "ab", "l", "abcl", "z"} {
		for _, n := range []int{1000, 100_000, 1_000_000} {
			text := strings.Repeat(char, n/len(char))
			work := &scratch{}
			tok.model.mergeLong(tok.model.symbols(text, nil), work, nil)
			if work.queued > 3*n {
				t.Errorf("%d × %q queued %d pairs", n, char, work.queued)
			}
		}
	}
}

// TestLongTexts encodes and decodes texts that invite quadratic work; with it, this test
// would not end.
func TestLongTexts(t *testing.T) {
	const size = 300_000
	v := readVariants(t)
	for i, c := range v.Cases {
		if c.Name != "as it is" && c.Name != "NFC" && c.Name != "tekken" {
			continue
		}
		tok := load(t, fstest.MapFS{mainFile: {Data: v.document(t, i)}})
		for _, part := range []string{
			"a", "ab", " ", "\n", " \n", "▁", "1", "'", "<", "<tool>", "<tool", "<|", "你", "\u0301",
			"e\u0301", "a ", "\xff", "'s", "-",
		} {
			text := strings.Repeat(part, size/len(part))
			ids := tok.Encode(text, EncodeOptions{ParseSpecial: true})
			if len(ids) == 0 || tok.Decode(ids, false) == "" {
				t.Errorf("%s: %q gave nothing", c.Name, part)
			}
		}
	}
}

// TestMillionCharacters is the same with the tables of real models.
func TestMillionCharacters(t *testing.T) {
	for _, name := range []string{"llama2", "llama3_1", "gemma3"} {
		tok := family(t, name)
		for _, char := range []string{"a", " "} {
			text := strings.Repeat(char, 1_000_000)
			ids := tok.Encode(text, EncodeOptions{})
			if got := tok.Decode(ids, false); got != text {
				t.Errorf("%s: a million %q came back as %d bytes", name, char, len(got))
			}
		}
	}
}

func TestPairTable(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, 1))
	table, want := newPairTable(0), map[[2]int32]merge{}
	for i := range 5000 {
		m := merge{random.Int32N(80), random.Int32N(80), int32(i), uint32(i)}
		table.put(m)
		want[[2]int32{m.left, m.right}] = m
	}
	for left := range int32(81) {
		for right := range int32(81) {
			rank, id := table.find(left, right)
			m, ok := want[[2]int32{left, right}]
			if ok != table.has(left, right) || ok && (rank != m.rank || id != m.id) ||
				!ok && rank != noMerge {
				t.Fatalf("seed %d: (%d, %d) is %d, %d, want %+v", seed, left, right, rank, id, m)
			}
		}
	}
}

func TestHeap(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 1))
	var queue []uint64
	for range 500 {
		queue = append(queue, random.Uint64N(100))
	}
	heapify(queue)
	last := uint64(0)
	for i := 0; len(queue) > 0; i++ {
		if i%3 == 0 && i < 900 {
			push(&queue, last+random.Uint64N(100))
		}
		top := pop(&queue)
		if top < last {
			t.Fatalf("seed %d: %d came after %d", seed, top, last)
		}
		last = top
	}
}

func TestByteLevelAlphabet(t *testing.T) {
	seen := map[rune]bool{}
	for b := range 256 {
		r := byteLevelRune(byte(b))
		back, ok := byteLevelByte(r)
		if !ok || back != byte(b) || seen[r] {
			t.Errorf("byte %d is %q and back %d, %v", b, r, back, ok)
		}
		seen[r] = true
	}
	for r := range rune(0x200) {
		if _, ok := byteLevelByte(r); ok != seen[r] {
			t.Errorf("%q stands for a byte: %v", r, ok)
		}
	}
	if got := byteLevelText("a \n\u00ad"); got != "aĠĊÂŃ" {
		t.Errorf("got %q", got)
	}
}
