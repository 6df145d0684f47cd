package embedded

import (
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// maxBytes is what the model may add to the binary.
const maxBytes = 3_000_000

func read(t *testing.T, name string, to any) {
	t.Helper()
	data, err := fs.ReadFile(FS(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestFilesAreAllThereAndSmall(t *testing.T) {
	want := map[string]bool{
		"config.json": true, "generation_config.json": true, "model.safetensors": true,
		"tokenizer.json": true, "tokenizer_config.json": true,
	}
	total := int64(0)
	entries, err := fs.ReadDir(FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("%s does not belong here", e.Name())
		}
		delete(want, e.Name())
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if len(want) != 0 || total > maxBytes {
		t.Errorf("missing %v; %d bytes of %d", want, total, maxBytes)
	}
}

// TestWeightsFitTheConfiguration checks the size of the weights against what config.json asks for.
func TestWeightsFitTheConfiguration(t *testing.T) {
	var c struct {
		Hidden  int  `json:"hidden_size"`
		Inner   int  `json:"intermediate_size"`
		Layers  int  `json:"num_hidden_layers"`
		Heads   int  `json:"num_attention_heads"`
		KVHeads int  `json:"num_key_value_heads"`
		Dim     int  `json:"head_dim"`
		Vocab   int  `json:"vocab_size"`
		Context int  `json:"max_position_embeddings"`
		Tied    bool `json:"tie_word_embeddings"`
	}
	read(t, "config.json", &c)
	if !c.Tied || c.Context < 512 || c.Heads%c.KVHeads != 0 || c.Dim%8 != 0 {
		t.Errorf("%+v", c)
	}
	attention := 2*c.Hidden*c.Heads*c.Dim + 2*c.Hidden*c.KVHeads*c.Dim
	layer := attention + 3*c.Hidden*c.Inner + 2*c.Hidden
	params := c.Vocab*c.Hidden + c.Layers*layer + c.Hidden

	data, err := fs.ReadFile(FS(), "model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	header := int(binary.LittleEndian.Uint64(data))
	if got := len(data) - 8 - header; got != 2*params {
		t.Errorf("%d bytes of weights, want two for each of %d", got, params)
	}
	if strings.Contains(string(data[8:8+header]), `"F32"`) {
		t.Error("weights are not BF16")
	}

	var tokenizer struct {
		Model struct {
			Vocab map[string]int32 `json:"vocab"`
		} `json:"model"`
	}
	read(t, "tokenizer.json", &tokenizer)
	if len(tokenizer.Model.Vocab) != c.Vocab {
		t.Errorf("%d tokens, %d rows", len(tokenizer.Model.Vocab), c.Vocab)
	}
	checkGolden(t, c.Vocab, c.Context)
}

// checkGolden checks that the golden file can be what it says; host/model computes it anew.
func checkGolden(t *testing.T, vocab, context int) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Prompt    string    `json:"prompt"`
			PromptIDs []int32   `json:"prompt_ids"`
			GreedyIDs []int32   `json:"greedy_ids"`
			Gap       float64   `json:"min_top2_gap"`
			Logits    []float64 `json:"logits_last_prompt_pos"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 3 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		ids := append(append([]int32{}, c.PromptIDs...), c.GreedyIDs...)
		for _, id := range ids {
			if id < 0 || int(id) >= vocab {
				t.Errorf("%.40q: token %d of %d", c.Prompt, id, vocab)
			}
		}
		best := 0
		for i, l := range c.Logits {
			if l > c.Logits[best] {
				best = i
			}
		}
		if len(c.GreedyIDs) != 40 || len(ids) > context || len(c.Logits) != vocab ||
			int32(best) != c.GreedyIDs[0] {
			t.Errorf("%.40q: %d ids, %d logits", c.Prompt, len(c.GreedyIDs), len(c.Logits))
		}
		// Two equal logits would make the tokens a matter of rounding.
		if c.Gap < 0.001 {
			t.Errorf("%.40q: the best two logits are only %v apart", c.Prompt, c.Gap)
		}
	}
}
