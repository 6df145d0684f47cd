package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// randomText mixes scripts, spaces and what looks like special tokens.
func randomText(random *rand.Rand) string {
	bits := []string{
		"a", "b", "ab ", "c", " ", "  ", "\n", "\r\n", "\t", "é", "e\u0301", "你", "😀",
		"1", "12", "'s", "'LL", "<s>", "</s>", "<tool>", "<0x41>", "▁", "-", "...", "Ġ", "\u00a0",
		"\u2028", "ſ", "K", "\u0300\u0316", "ﬁ", "한", "\u1100\u1161",
	}
	var out strings.Builder
	for range random.IntN(30) {
		if random.IntN(4) == 0 {
			out.WriteRune(rune(random.IntN(utf8.MaxRune)))
		} else {
			out.WriteString(bits[random.IntN(len(bits))])
		}
	}
	return out.String()
}

func variant(t testing.TB, base string) *Tokenizer {
	t.Helper()
	v := readVariants(t)
	for i, c := range v.Cases {
		if c.Base == base && c.Name == "as it is" {
			return load(t, fstest.MapFS{mainFile: {Data: v.document(t, i)}})
		}
	}
	t.Fatalf("no variant %s", base)
	return nil
}

// TestRoundTrip: a vocabulary that covers all bytes gives every text back, and the bytes of
// its tokens put together are the text.
func TestRoundTrip(t *testing.T) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 1))
	byteLevel, piece := variant(t, "byte"), variant(t, "piece")
	for round := range 2000 {
		text := randomText(random)
		for _, parse := range []bool{false, true} {
			ids := byteLevel.Encode(text, EncodeOptions{ParseSpecial: parse})
			if got := byteLevel.Decode(ids, false); got != text {
				t.Fatalf("seed %d, round %d: %q came back as %q", seed, round, text, got)
			}
			var joined []byte
			for _, id := range ids {
				joined = append(joined, byteLevel.TokenBytes(id)...)
				if !parse && byteLevel.IsSpecial(id) {
					t.Fatalf("seed %d, round %d: %q holds the special %d", seed, round, text, id)
				}
			}
			if string(joined) != text {
				t.Fatalf("seed %d, round %d: %q is made of %q", seed, round, text, joined)
			}
		}
		text = strings.NewReplacer("▁", " ", "<tool>", "").Replace(text)
		ids := piece.Encode(text, EncodeOptions{})
		if got := piece.Decode(ids, false); got != text {
			t.Fatalf("seed %d, round %d: %q came back as %q", seed, round, text, got)
		}
	}
}

// TestStreamRandom feeds random IDs: a stream gives what decoding the whole gives, also
// where bytes are no characters and where IDs are not in the vocabulary.
func TestStreamRandom(t *testing.T) {
	const seed = 13
	random := rand.New(rand.NewPCG(seed, 1))
	for _, base := range []string{"byte", "piece"} {
		tok := variant(t, base)
		for range 2000 {
			ids := make([]int32, random.IntN(12))
			for i := range ids {
				ids[i] = random.Int32N(int32(tok.VocabSize())+4) - 2
			}
			checkStream(t, tok, ids, random.IntN(2) == 0)
		}
	}
}

// TestStreamIsPrompt: a character comes out with its last byte, not later.
func TestStreamIsPrompt(t *testing.T) {
	tok := variant(t, "piece")
	s := tok.NewStream(true)
	bos, _ := tok.lookup("<s>")
	var got []string
	for _, id := range append([]int32{bos}, tok.Encode("ab 😀\n", EncodeOptions{})...) {
		got = append(got, s.Push(id))
	}
	want := []string{"", "a", "b", " ", "", "", "", "😀", "\n"}
	if !slices.Equal(got, want) || s.Flush() != "" {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStreamIsReusable(t *testing.T) {
	tok := variant(t, "piece")
	s := tok.NewStream(false)
	for range 2 {
		var got strings.Builder
		for _, id := range tok.Encode("ab ab", EncodeOptions{}) {
			got.WriteString(s.Push(id))
		}
		got.WriteString(s.Flush())
		if got.String() != "ab ab" {
			t.Errorf("got %q", got.String())
		}
	}
}

// TestManyGoroutines uses one tokenizer from several goroutines at once.
func TestManyGoroutines(t *testing.T) {
	tok := variant(t, "byte")
	text := strings.Repeat("hello word 12 it's\n", 50)
	want := tok.Encode(text, EncodeOptions{})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				ids := tok.Encode(text, EncodeOptions{})
				if !slices.Equal(ids, want) || tok.Decode(ids, false) != text {
					t.Error("another result beside others")
				}
			}
		})
	}
	group.Wait()
}

func TestInvalidUTF8(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "\xff": "\ufffd", "\xe4\xbd": "\ufffd", "\xe4\xbdx": "\ufffdx",
		"\xf0\x9f\x98": "\ufffd", "\x80\x80": "\ufffd\ufffd",
		"\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xc0\xaf": "\ufffd\ufffd",
		"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd", "\xe4\xe4\xbd\xa0": "\ufffd你",
	} {
		if got := validUTF8(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestLongMarks: many combining marks are put in order and composed without the joiner
// that the norm package would add.
func TestLongMarks(t *testing.T) {
	many := strings.Repeat("\u0301", 100)
	for text, want := range map[string]string{
		"a" + many: "á" + many[2:],
		"q" + strings.Repeat("\u0307\u0323", 50): "q" + strings.Repeat("\u0323", 50) +
			strings.Repeat("\u0307", 50),
		many: many,
	} {
		if got := composed(norm.NFC)(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := decomposed(norm.NFD)("á" + many); got != "a\u0301"+many {
		t.Errorf("got %q", got)
	}
}

// TestComposeEqualsNorm compares our own composition with the norm package where that does
// not add joiners.
func TestComposeEqualsNorm(t *testing.T) {
	const seed = 17
	random := rand.New(rand.NewPCG(seed, 1))
	marks := []rune("aeoqÅ\u0300\u0301\u0304\u0307\u0316\u0323\u0345각ᄀ가\u11a8\u0928\u093c½ﬁ")
	for range 3000 {
		text := make([]rune, random.IntN(12))
		for i := range text {
			text[i] = marks[random.IntN(len(marks))]
		}
		for _, form := range []norm.Form{norm.NFC, norm.NFKC} {
			got, want := string(compose(decompose(string(text), form))), form.String(string(text))
			if got != want {
				t.Fatalf("seed %d: %+q became %+q, want %+q", seed, string(text), got, want)
			}
		}
	}
}

// TestRegexDialect: what the regexp package would understand differently is refused.
func TestRegexDialect(t *testing.T) {
	chars := newCharClasses()
	for _, pattern := range []string{
		`a(?=b)`, `(?<!a)b`, `a++`, `a?+`, `[a&&b]`, `[a[bc]]`, `[[:alpha:]]`, `^a`,
		`a$`, `\bword`, `\w+`, `\h`, `a*`, ``, `[`, `a{,3}`, `(?m:.)`, `(?<name>a)`, `\G`, `[\S]`,
		"a\\", `(a)\1`, `\Aa`, `a|\s+(?!\S)`,
	} {
		_, err := newRegexFinder(pattern, chars)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(pattern)) {
			t.Errorf("%s: error is %v", pattern, err)
		}
	}
	for _, c := range []struct{ pattern, text, want string }{
		{`\s+`, "a\u00a0\u2003b", "\u00a0\u2003"},
		{`[^\s]+`, "\u3000ab ", "ab"},
		{`\S+`, " ab\u2028", "ab"},
		{`\d+`, "a\u0663\u0664", "\u0663\u0664"},
		{`(?i:'s)`, "it'S", "'S"},
		{`\p{Lu}|\s+(?!\S)|\s+`, "a   b", "  "},
		{`\p{Lu}|\s+(?!\S)|\s+`, "a b", " "},
		{`\p{Lu}|\s+(?!\S)|\s+`, "a   ", "   "},
	} {
		find, err := newRegexFinder(c.pattern, chars)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		start, end := find.find(c.text, 0)
		if start < 0 || c.text[start:end] != c.want {
			t.Errorf("%s in %q: %d to %d, want %q", c.pattern, c.text, start, end, c.want)
		}
	}
}

// TestWordsEqualRegex compares the hand-written matchers with the same patterns run through
// the regexp package.
func TestWordsEqualRegex(t *testing.T) {
	const seed = 19
	random := rand.New(rand.NewPCG(seed, 1))
	chars := newCharClasses()
	for pattern, words := range map[string]finder{
		gpt2Pattern:   gpt2Words{chars},
		llama3Pattern: llama3Words{chars, 3},
		qwen2Pattern:  llama3Words{chars, 1},
	} {
		slow, err := newRegexFinder(pattern, chars)
		if err != nil {
			t.Fatal(err)
		}
		for range 2000 {
			text := strings.Map(func(r rune) rune {
				if unicode.In(r, newLetters, newNumbers) { // the regexp package has no idea
					return 'x'
				}
				return r
			}, validUTF8(randomText(random)))
			for pos := 0; pos < len(text); {
				start, end := words.find(text, pos)
				wantStart, wantEnd := slow.find(text, pos)
				if start != wantStart || end != wantEnd {
					t.Fatalf("seed %d, %q at %d: %d to %d, want %d to %d", seed, text, pos,
						start, end, wantStart, wantEnd)
				}
				pos = end
			}
		}
	}
}

// FuzzText encodes any text with a byte-level and a byte-fallback vocabulary.
func FuzzText(f *testing.F) {
	for _, text := range readVariants(f).Texts {
		f.Add([]byte(text))
	}
	byteLevel, piece := variant(f, "byte"), variant(f, "piece")
	f.Fuzz(func(t *testing.T, raw []byte) {
		text := string(raw)
		ids := byteLevel.Encode(text, EncodeOptions{ParseSpecial: true})
		if got := byteLevel.Decode(ids, false); got != validUTF8(text) {
			t.Errorf("%q came back as %q", text, got)
		}
		if !bytes.Equal([]byte(validUTF8(text)), []byte(byteLevel.Decode(ids, false))) {
			t.Error("decoding is not a function of the IDs")
		}
		checkStream(t, piece, piece.Encode(text, EncodeOptions{AddSpecial: true}), true)
	})
}
