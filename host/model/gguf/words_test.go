package gguf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// TestInOwnWords: no key of config.json that is made from the metadata, and no tensor's name of the
// folder, stays in an error about the file.
func TestInOwnWords(t *testing.T) {
	f, files := tinyFolder(t)
	words := func(err error) error {
		return files.(interface{ InOwnWords(error) error }).InOwnWords(err)
	}
	data, err := fs.ReadFile(files, "config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	for _, derived := range []string{"architectures", "torch_dtype", "stored_bytes",
		"tie_word_embeddings"} { // by which the engine refuses nothing
		delete(config, derived)
	}
	for key := range config {
		cause := errors.New("cause")
		got := words(fmt.Errorf("config.json: %q is wrong: %w", key, cause))
		_, own, _ := strings.Cut(got.Error(), `metadata: "`)
		own, _, _ = strings.Cut(own, `"`)
		_, tensor := f.tensor(own)
		if !strings.HasPrefix(own, "llama.") && !strings.HasPrefix(own, tokenizerPrefix) &&
			!tensor && own != factorsName {
			t.Errorf("of %q it says: %v", key, got)
		}
		if !errors.Is(got, cause) {
			t.Errorf("%v has lost its cause", got)
		}
	}
	for _, pair := range [][2]string{
		{`"model.embed_tokens.weight" has shape [2], the configuration makes it [3]`,
			`"token_embd.weight" has shape [2], the metadata make it [3]`},
		{`tensor "model.layers.12.self_attn.q_proj.weight" is missing`,
			`tensor "blk.12.attn_q.weight" is missing`},
		{`"lm_head.weight" belongs to no part of X as config.json describes it`,
			`"output.weight" belongs to no part of X as its metadata describe it`},
		{`"name" is what it is`, `"name" is what it is`},
	} {
		if got := words(errors.New(pair[0])); got.Error() != pair[1] {
			t.Errorf("%q became %q, want %q", pair[0], got, pair[1])
		}
	}
	if err := words(nil); err != nil {
		t.Errorf("nothing became %v", err)
	}
}
