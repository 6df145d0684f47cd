package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// modelPart is the "model" of a tokenizer.json.
type modelPart struct {
	vocab map[string]int32
	names []string // in the order of the file
	ids   []int32
	// merges are read once the vocabulary is; until then they wait as they are.
	merges       []merge
	hasMerges    bool
	waiting      []byte
	unk          string
	byteFallback bool
	fuseUnk      bool
	ignoreMerges bool
}

func readModel(r *jsonReader) (*modelPart, error) {
	m := &modelPart{}
	if err := r.object(func(key string) error { return m.read(r, key) }); err != nil {
		return nil, err
	}
	switch {
	case m.vocab == nil:
		return nil, &pathError{"vocab", errors.New("is missing")}
	case !m.hasMerges:
		return nil, &pathError{"merges", errors.New("is missing")}
	case m.waiting == nil:
		return m, nil
	}
	if err := m.readMerges(&jsonReader{data: m.waiting}); err != nil {
		return nil, at("merges", err)
	}
	return m, nil
}

func (m *modelPart) read(r *jsonReader, key string) (err error) {
	isNull := r.peek() == 'n'
	switch {
	case key == "vocab":
		return m.readVocab(r)
	case key == "merges" && m.vocab == nil:
		m.hasMerges = true
		m.waiting, err = r.skip()
		return err
	case key == "merges":
		m.hasMerges = true
		return m.readMerges(r)
	case isNull:
		_, err = r.skip()
		return err
	}
	switch key {
	case "type":
		return r.only("BPE")
	case "continuing_subword_prefix", "end_of_word_suffix":
		return r.only("")
	case "unk_token":
		var unk []byte
		unk, err = r.text()
		m.unk = string(unk)
	case "fuse_unk":
		m.fuseUnk, err = r.boolean()
	case "byte_fallback":
		m.byteFallback, err = r.boolean()
	case "ignore_merges":
		m.ignoreMerges, err = r.boolean()
	case "dropout":
		var value []byte
		if value, err = r.skip(); err == nil && string(value) != "0" && string(value) != "0.0" {
			err = fmt.Errorf("dropout is %w", ErrUnsupported)
		}
	default:
		err = fmt.Errorf("this setting is %w", ErrUnsupported)
	}
	return err
}

// only refuses every string but one.
func (r *jsonReader) only(want string) error {
	got, err := r.text()
	if err == nil && string(got) != want {
		err = fmt.Errorf("%q is %w", clip(got), ErrUnsupported)
	}
	return err
}

func (m *modelPart) readVocab(r *jsonReader) error {
	m.vocab = map[string]int32{}
	return r.object(func(name string) error {
		id, err := r.tokenID()
		m.vocab[name] = id
		m.names, m.ids = append(m.names, name), append(m.ids, id)
		return err
	})
}

// readMerges reads merges as pairs (["a", "b"]) or, as older files have it, as "a b".
func (m *modelPart) readMerges(r *jsonReader) error {
	var joined []byte // left and right of one merge
	return r.array(func(int) error {
		left, right, err := readMerge(r)
		if err != nil || left == nil {
			return err
		}
		joined = append(append(joined[:0], left...), right...)
		var ids [3]int32
		for i, name := range [][]byte{left, right, joined} {
			id, ok := m.vocab[string(name)]
			if !ok {
				return fmt.Errorf("the token %q is not in model.vocab", clip(name))
			}
			ids[i] = id
		}
		m.merges = append(m.merges, merge{ids[0], ids[1], ids[2], uint32(len(m.merges))})
		return nil
	})
}

// readMerge returns the two sides of a merge, nil for a line that is none.
func readMerge(r *jsonReader) (left, right []byte, err error) {
	if r.peek() == '"' {
		line, err := r.text()
		if err != nil || bytes.HasPrefix(line, []byte("#version")) {
			return nil, nil, err
		}
		left, right, ok := bytes.Cut(line, []byte(" "))
		if !ok || bytes.Contains(right, []byte(" ")) {
			return nil, nil, fmt.Errorf("%q should be two tokens with a space between", clip(line))
		}
		return left, right, nil
	}
	parts := 0
	err = r.array(func(i int) (err error) {
		parts++
		switch i {
		case 0:
			left, err = r.text()
		case 1:
			right, err = r.text()
		default:
			return errors.New("a merge has two sides")
		}
		return err
	})
	if err == nil && parts != 2 {
		err = errors.New("a merge has two sides")
	}
	return left, right, err
}

// build makes the model. byteLevel says in which alphabet the vocabulary is written.
func (m *modelPart) build(tokens []vocabToken, byteLevel bool) (*bpe, error) {
	b := &bpe{
		vocab: m.vocab, unk: -1, fuseUnk: m.fuseUnk, ignoreMerges: m.ignoreMerges,
		symbol: newSymbolTable(m.vocab, byteLevel),
		pairs:  newPairTable(len(m.merges)),
	}
	for _, one := range m.merges {
		b.pairs.put(one)
	}
	if b.symbol.complete() {
		return b, nil // nothing is ever unknown
	}
	if m.unk != "" {
		id, ok := m.vocab[m.unk]
		if !ok {
			return nil, &pathError{"unk_token", fmt.Errorf("%q is not in model.vocab", m.unk)}
		}
		b.unk = id
	}
	if m.byteFallback && byteLevel {
		why := fmt.Errorf("beside ByteLevel it is %w", ErrUnsupported)
		return nil, &pathError{"byte_fallback", why}
	}
	if m.byteFallback {
		b.byteTokens = byteTokens(m.vocab)
	}
	if !byteLevel {
		b.borders = m.borders(b, tokens)
	}
	return b, nil
}

// byteTokens finds "<0x00>" to "<0xFF>"; what is missing is -1.
func byteTokens(vocab map[string]int32) *[256]int32 {
	var ids [256]int32
	for b := range ids {
		ids[b] = -1
		if id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			ids[b] = id
		}
	}
	return &ids
}

// borders collects which symbols can stand left and right of a place that a merge joins: a
// merge of L and R joins the last symbol of L with the first of R.
func (m *modelPart) borders(b *bpe, tokens []vocabToken) *pairTable {
	t := newPairTable(0)
	var lefts, rights []int32
	for _, one := range m.merges {
		lefts = m.lastSymbols(b, tokens[one.left].text, lefts[:0])
		rights = m.firstSymbols(b, tokens[one.right].text, rights[:0])
		for _, left := range lefts {
			for _, right := range rights {
				t.put(merge{left: left, right: right})
			}
		}
	}
	return t
}

const byteTokenSize = len("<0x00>")

// lastSymbols lists the symbols that a token's text can end with: its last character, or a
// byte token or the unknown token, whose names are part of the text of what they merge into.
func (m *modelPart) lastSymbols(b *bpe, text string, out []int32) []int32 {
	_, size := utf8.DecodeLastRuneInString(text)
	if id, _ := b.symbol.at(text, len(text)-size); id >= 0 {
		out = append(out, id)
	}
	if b.byteTokens != nil && len(text) >= byteTokenSize {
		if v, ok := byteToken(text[len(text)-byteTokenSize:]); ok && b.byteTokens[v] >= 0 {
			out = append(out, b.byteTokens[v])
		}
	}
	if b.unk >= 0 && strings.HasSuffix(text, m.unk) {
		out = append(out, b.unk)
	}
	return out
}

// firstSymbols lists the symbols that a token's text can begin with.
func (m *modelPart) firstSymbols(b *bpe, text string, out []int32) []int32 {
	if id, _ := b.symbol.at(text, 0); id >= 0 {
		out = append(out, id)
	}
	if b.byteTokens != nil && len(text) >= byteTokenSize {
		if v, ok := byteToken(text[:byteTokenSize]); ok && b.byteTokens[v] >= 0 {
			out = append(out, b.byteTokens[v])
		}
	}
	if b.unk >= 0 && strings.HasPrefix(text, m.unk) {
		out = append(out, b.unk)
	}
	return out
}
