package tokenizer

import "unicode/utf8"

// bpe is the model of a tokenizer.json: byte-pair encoding. A piece of text becomes symbols
// (its characters, or its bytes where the pre-tokenizer is byte-level), and then the
// neighbours that come first in the list of merges are joined, again and again, the
// leftmost of equals first.
type bpe struct {
	vocab map[string]int32
	pairs *pairTable
	// borders holds the symbol pairs that some merge joins across. Where two neighbours
	// are not in it no merge can ever reach from one side to the other, so a text without
	// pre-tokenizer falls apart into words. It is nil for byte-level models.
	borders *pairTable
	// symbol finds the ID of a character, or of the character a byte is written as.
	symbol symbolTable
	// byteTokens are the IDs of "<0x00>" to "<0xFF>", or nil without byte fallback.
	byteTokens   *[256]int32
	unk          int32 // -1: characters that have no token vanish
	fuseUnk      bool
	ignoreMerges bool
}

// scratch is what encoding one piece needs; it is reused from call to call.
type scratch struct {
	symbols    []int32
	rank       []uint32
	id         []int32
	prev, next []int32
	queue      []uint64
	queued     int // how many pairs went through the queue so far
}

// encode appends the token IDs of one piece.
func (m *bpe) encode(piece string, s *scratch, out []int32) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole(piece); ok {
			return append(out, id)
		}
	}
	s.symbols = m.symbols(piece, s.symbols[:0])
	if m.borders == nil {
		return m.merge(s.symbols, s, out)
	}
	start := 0
	for i := 1; i < len(s.symbols); i++ {
		if !m.borders.has(s.symbols[i-1], s.symbols[i]) {
			out = m.merge(s.symbols[start:i], s, out)
			start = i
		}
	}
	return m.merge(s.symbols[start:], s, out)
}

// whole looks a piece up as one token.
func (m *bpe) whole(piece string) (int32, bool) {
	if !m.symbol.byteLevel {
		id, ok := m.vocab[piece]
		return id, ok
	}
	var buf [64]byte
	if len(piece) > len(buf)/2 {
		id, ok := m.vocab[byteLevelText(piece)]
		return id, ok
	}
	id, ok := m.vocab[string(appendByteLevel(buf[:0], piece))]
	return id, ok
}

// symbols appends what piece is made of before any merge.
func (m *bpe) symbols(piece string, out []int32) []int32 {
	unknown := false // an unk that waits to be joined by others
	for i := 0; i < len(piece); {
		id, size := m.symbol.at(piece, i)
		char := piece[i : i+size]
		i += size
		if id >= 0 {
			if unknown {
				out, unknown = append(out, m.unk), false
			}
			out = append(out, id)
			continue
		}
		if fallback, ok := m.appendBytes(char, out); ok {
			out = fallback
			continue
		}
		if unknown && !m.fuseUnk {
			out = append(out, m.unk)
		}
		unknown = m.unk >= 0
	}
	if unknown {
		out = append(out, m.unk)
	}
	return out
}

// appendBytes writes a character as its byte tokens, if the vocabulary has all of them.
func (m *bpe) appendBytes(char string, out []int32) ([]int32, bool) {
	if m.byteTokens == nil {
		return nil, false
	}
	for i := range len(char) {
		id := m.byteTokens[char[i]]
		if id < 0 {
			return nil, false
		}
		out = append(out, id)
	}
	return out, true
}

// shortWord is up to how many symbols searching all pairs beats keeping a queue.
const shortWord = 32

// merge appends what the symbols of one word become. It uses word as working space.
func (m *bpe) merge(word []int32, s *scratch, out []int32) []int32 {
	switch {
	case len(word) < 2:
		return append(out, word...)
	case len(word) <= shortWord:
		return m.mergeShort(word, out)
	}
	return m.mergeLong(word, s, out)
}

func (m *bpe) mergeShort(w []int32, out []int32) []int32 {
	var rank [shortWord]uint32
	var id [shortWord]int32
	for i := range len(w) - 1 {
		rank[i], id[i] = m.pairs.find(w[i], w[i+1])
	}
	for len(w) > 1 {
		n, best := len(w)-1, 0
		for i := 1; i < n; i++ {
			if rank[i] < rank[best] {
				best = i
			}
		}
		if rank[best] == noMerge {
			break
		}
		w[best] = id[best]
		w = append(w[:best+1], w[best+2:]...)
		copy(rank[best:n-1], rank[best+1:n])
		copy(id[best:n-1], id[best+1:n])
		if best > 0 {
			rank[best-1], id[best-1] = m.pairs.find(w[best-1], w[best])
		}
		if best+1 < len(w) {
			rank[best], id[best] = m.pairs.find(w[best], w[best+1])
		}
	}
	return append(out, w...)
}

// mergeLong keeps the pairs that can merge in a queue ordered by rank, then by place; a word
// of n symbols takes n log n steps. An entry whose pair has changed since is passed over.
func (m *bpe) mergeLong(w []int32, s *scratch, out []int32) []int32 {
	s.link(len(w))
	for i := range len(w) - 1 {
		s.rank[i], s.id[i] = m.pairs.find(w[i], w[i+1])
		if s.rank[i] != noMerge {
			s.queue = append(s.queue, uint64(s.rank[i])<<32|uint64(i))
			s.queued++
		}
	}
	heapify(s.queue)
	for len(s.queue) > 0 {
		top := pop(&s.queue)
		i := int32(uint32(top))
		if s.rank[i] != uint32(top>>32) {
			continue
		}
		w[i] = s.id[i]
		gone := s.next[i]
		s.rank[gone] = noMerge
		s.next[i] = s.next[gone]
		if after := s.next[i]; after >= 0 {
			s.prev[after] = i
		}
		m.renew(w, s, i)
		if before := s.prev[i]; before >= 0 {
			m.renew(w, s, before)
		}
	}
	for i := int32(0); i >= 0; i = s.next[i] {
		out = append(out, w[i])
	}
	return out
}

// renew looks up the pair that begins at i again, and queues it if it can merge.
func (m *bpe) renew(w []int32, s *scratch, i int32) {
	s.rank[i] = noMerge
	if s.next[i] < 0 {
		return
	}
	s.rank[i], s.id[i] = m.pairs.find(w[i], w[s.next[i]])
	if s.rank[i] != noMerge {
		push(&s.queue, uint64(s.rank[i])<<32|uint64(i))
		s.queued++
	}
}

// link makes the scratch a chain of n symbols with no pairs.
func (s *scratch) link(n int) {
	if cap(s.rank) < n {
		s.rank, s.id = make([]uint32, n), make([]int32, n)
		s.prev, s.next = make([]int32, n), make([]int32, n)
	}
	s.rank, s.id, s.prev, s.next = s.rank[:n], s.id[:n], s.prev[:n], s.next[:n]
	for i := range s.next {
		s.prev[i], s.next[i] = int32(i)-1, int32(i)+1
	}
	s.rank[n-1], s.next[n-1] = noMerge, -1
	s.queue = s.queue[:0]
}

// symbolTable finds the token of a single character.
type symbolTable struct {
	byteLevel bool
	bytes     [256]int32 // byte-level: the token of each byte; otherwise of ASCII characters
	runes     map[rune]int32
}

// at returns the token of the character at text[i:], -1 if it has none, and its size.
func (t *symbolTable) at(text string, i int) (id int32, size int) {
	if b := text[i]; t.byteLevel || b < utf8.RuneSelf {
		return t.bytes[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	if id, ok := t.runes[r]; ok {
		return id, size
	}
	return -1, size
}

func newSymbolTable(vocab map[string]int32, byteLevel bool) symbolTable {
	t := symbolTable{byteLevel: byteLevel, runes: map[rune]int32{}}
	for b := range t.bytes {
		t.bytes[b] = -1
		char := string(rune(b))
		if byteLevel {
			char = string(byteLevelRune(byte(b)))
		}
		if id, ok := vocab[char]; ok && (byteLevel || b < utf8.RuneSelf) {
			t.bytes[b] = id
		}
	}
	if byteLevel {
		return t
	}
	for text, id := range vocab {
		if r, size := utf8.DecodeRuneInString(text); size > 1 && size == len(text) {
			t.runes[r] = id
		}
	}
	return t
}

// complete reports whether every byte has a token, so that no text is unknown.
func (t *symbolTable) complete() bool {
	if !t.byteLevel {
		return false
	}
	for _, id := range t.bytes {
		if id < 0 {
			return false
		}
	}
	return true
}
