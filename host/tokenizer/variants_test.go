package tokenizer

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
)

// variants are small tokenizers that differ in one setting, with what the reference makes of
// a list of texts (testdata/make_variants.py).
type variants struct {
	Bases map[string]map[string]json.RawMessage
	Texts []string
	Cases []struct {
		Name, Base      string
		Document, Model map[string]json.RawMessage
		// Results are, for each text, its IDs, those with special tokens added, those with
		// special tokens as text, the decoded text and that without special tokens.
		Results [][5]json.RawMessage
	}
}

func readVariants(t testing.TB) variants {
	t.Helper()
	var v variants
	readJSON(t, filepath.Join("testdata", "variants.json"), &v)
	return v
}

// document puts a case's changes into its base.
func (v *variants) document(t testing.TB, i int) []byte {
	t.Helper()
	c := v.Cases[i]
	doc := maps.Clone(v.Bases[c.Base])
	maps.Copy(doc, c.Document)
	var model map[string]json.RawMessage
	if err := json.Unmarshal(doc["model"], &model); err != nil {
		t.Fatal(err)
	}
	maps.Copy(model, c.Model)
	raw, err := json.Marshal(model)
	if err != nil {
		t.Fatal(err)
	}
	doc["model"] = raw
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestVariants(t *testing.T) {
	v := readVariants(t)
	for i, c := range v.Cases {
		t.Run(c.Base+" "+c.Name, func(t *testing.T) {
			tok := load(t, fstest.MapFS{mainFile: {Data: v.document(t, i)}})
			for j, text := range v.Texts {
				checkVariant(t, tok, text, c.Results[j])
			}
		})
	}
}

func checkVariant(t *testing.T, tok *Tokenizer, text string, want [5]json.RawMessage) {
	t.Helper()
	var ids []int32
	for i, o := range []EncodeOptions{{false, true}, {true, true}, {false, false}} {
		var wanted []int32
		if err := json.Unmarshal(want[i], &wanted); err != nil {
			t.Fatal(err)
		}
		got := tok.Encode(text, o)
		if !slices.Equal(got, wanted) {
			t.Errorf("%q %+v:\n got %v\nwant %v", text, o, got, wanted)
		}
		if i == 0 {
			ids = wanted
		}
	}
	for i, skip := range []bool{false, true} {
		var wanted *string
		if err := json.Unmarshal(want[3+i], &wanted); err != nil {
			t.Fatal(err)
		}
		if got := tok.Decode(ids, skip); wanted != nil && got != *wanted {
			t.Errorf("%q, decoded %v:\n got %q\nwant %q", text, ids, got, *wanted)
		}
		checkStream(t, tok, ids, skip)
	}
}
