package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goldenCase is one text with what Hugging Face's tokenizers library makes of it.
type goldenCase struct {
	ID          int      `json:"id"`
	IDs         []int32  `json:"ids"`
	Tokens      []string `json:"tokens"`
	IDsSpecial  []int32  `json:"ids_special"`
	Decoded     *string  `json:"decoded"`
	DecodedSkip *string  `json:"decoded_skip"`
	N           int      `json:"n"`
	SHA256      string   `json:"sha256"`
	Head        []int32  `json:"head"`
	Tail        []int32  `json:"tail"`
	DecodedSHA  string   `json:"decoded_sha256"`
	Roundtrip   *bool    `json:"roundtrip"`
}

// goldenTexts reads the texts by their number; raw holds those that are not UTF-8.
func goldenTexts(t testing.TB) (texts map[int]string, raw map[int]string) {
	var strs []struct {
		ID     int     `json:"id"`
		Text   *string `json:"text"`
		B64    []byte  `json:"b64"`
		Repeat []any   `json:"repeat"`
	}
	readJSON(t, filepath.Join(sharedDir(t), "tokenizer_golden", "strings.json"), &strs)
	texts, raw = map[int]string{}, map[int]string{}
	for _, s := range strs {
		switch {
		case s.Repeat != nil:
			texts[s.ID] = strings.Repeat(s.Repeat[0].(string), int(s.Repeat[1].(float64)))
		case s.Text != nil:
			texts[s.ID] = *s.Text
		}
		if s.B64 != nil {
			raw[s.ID] = string(s.B64)
		}
	}
	return texts, raw
}

func goldenCases(t testing.TB, name string) []goldenCase {
	var golden struct{ Cases []goldenCase }
	readJSON(t, filepath.Join(sharedDir(t), "tokenizer_golden", name+".json"), &golden)
	return golden.Cases
}

func TestGolden(t *testing.T) {
	texts, raw := goldenTexts(t)
	for _, name := range families {
		t.Run(name, func(t *testing.T) {
			tok := family(t, name)
			cases := goldenCases(t, name)
			if len(cases) == 0 {
				t.Fatal("no cases")
			}
			for _, c := range cases {
				text, ok := texts[c.ID]
				if !ok {
					t.Fatalf("case %d has no text", c.ID)
				}
				checkGolden(t, tok, c, text)
				if bytes, ok := raw[c.ID]; ok {
					checkGolden(t, tok, c, bytes)
				}
			}
			t.Logf("%d cases", len(cases))
		})
	}
}

func checkGolden(t *testing.T, tok *Tokenizer, c goldenCase, text string) {
	t.Helper()
	ids := tok.Encode(text, EncodeOptions{ParseSpecial: true})
	special := tok.Encode(text, EncodeOptions{ParseSpecial: true, AddSpecial: true})
	if c.SHA256 != "" {
		checkLong(t, tok, c, text, ids)
		return
	}
	if !slices.Equal(ids, c.IDs) {
		t.Errorf("case %d %q:\n got %v\nwant %v", c.ID, text, ids, c.IDs)
		return
	}
	want := c.IDsSpecial
	if want == nil {
		want = c.IDs
	}
	if !slices.Equal(special, want) {
		t.Errorf("case %d %q with special:\n got %v\nwant %v", c.ID, text, special, want)
	}
	for i, id := range ids {
		if got := tok.Token(id); got != c.Tokens[i] {
			t.Errorf("case %d: token %d is %q, want %q", c.ID, id, got, c.Tokens[i])
		}
	}
	decoded := validUTF8(text)
	if c.Decoded != nil {
		decoded = *c.Decoded
	}
	checkDecode(t, tok, ids, false, decoded)
	if c.DecodedSkip != nil {
		decoded = *c.DecodedSkip
	}
	checkDecode(t, tok, ids, true, decoded)
}

// checkDecode decodes whole and as a stream that ends at every place.
func checkDecode(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want string) {
	t.Helper()
	if got := tok.Decode(ids, skip); got != want {
		t.Errorf("decode %v (skip special: %v):\n got %q\nwant %q", ids, skip, got, want)
	}
	for end := range ids {
		checkStream(t, tok, ids[:end+1], skip)
	}
}

func checkLong(t *testing.T, tok *Tokenizer, c goldenCase, text string, ids []int32) {
	t.Helper()
	digits := make([]string, len(ids))
	for i, id := range ids {
		digits[i] = strconv.Itoa(int(id))
	}
	if got := hexSum(strings.Join(digits, ",")); got != c.SHA256 || len(ids) != c.N {
		t.Errorf("case %d: %d ids begin %v end %v, want %d, %v, %v", c.ID, len(ids),
			ids[:min(8, len(ids))], ids[max(0, len(ids)-8):], c.N, c.Head, c.Tail)
	}
	decoded := tok.Decode(ids, false)
	if got := hexSum(decoded); got != c.DecodedSHA {
		t.Errorf("case %d: decoded wrongly to %d bytes", c.ID, len(decoded))
	}
	if c.Roundtrip != nil && *c.Roundtrip != (decoded == text) {
		t.Errorf("case %d: round trip is %v, want %v", c.ID, decoded == text, *c.Roundtrip)
	}
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// checkStream feeds ids one by one and compares with the decoding of the whole.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32, skip bool) {
	t.Helper()
	s := tok.NewStream(skip)
	var got strings.Builder
	for _, id := range ids {
		part := s.Push(id)
		if validUTF8(part) != part {
			t.Fatalf("half a character: %q from %v", part, ids)
		}
		got.WriteString(part)
	}
	got.WriteString(s.Flush())
	if want := tok.Decode(ids, skip); got.String() != want {
		t.Fatalf("stream of %v:\n got %q\nwant %q", ids, got.String(), want)
	}
}
