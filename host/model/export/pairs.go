package export

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/tokenizer"
)

// pairs are the metadata.
func (w *writing) pairs() ([]gguf.Pair, error) {
	l, a := w.layout, w.naming.Architecture
	list := []gguf.Pair{
		{Key: "general.architecture", Value: a},
		{Key: "general.name", Value: w.Name},
		{Key: "general.file_type", Value: fileTypes[w.Type]},
		{Key: "general.quantization_version", Value: 2},
		{Key: a + ".context_length", Value: l.Context},
		{Key: a + ".embedding_length", Value: l.Hidden},
		{Key: a + ".block_count", Value: l.Layers},
		{Key: a + ".feed_forward_length", Value: l.Intermediate},
		{Key: a + ".attention.head_count", Value: l.Heads},
		{Key: a + ".attention.head_count_kv", Value: l.KVHeads},
		{Key: a + ".attention.key_length", Value: l.HeadDim},
		{Key: a + ".attention.value_length", Value: l.HeadDim},
		{Key: a + ".attention.layer_norm_rms_epsilon", Value: float64(l.Eps)},
		{Key: a + ".rope.freq_base", Value: l.Theta},
		{Key: a + ".rope.dimension_count", Value: l.Rotated},
		{Key: a + ".vocab_size", Value: l.Vocabulary},
	}
	if l.Experts > 0 {
		list = append(list, gguf.Pair{Key: a + ".expert_count", Value: l.Experts},
			gguf.Pair{Key: a + ".expert_used_count", Value: l.Chosen})
	}
	switch {
	case l.Window == 0:
	case a == "gemma3", a == "gemma2":
		if err := usualGemma(l, a); err != nil {
			return nil, err
		}
		fallthrough
	case l.UniformWindow && (a == "llama" || a == "phi3"):
		list = append(list, gguf.Pair{Key: a + ".attention.sliding_window", Value: l.Window})
	default:
		return nil, fmt.Errorf("its sliding window cannot be said in a GGUF file of %s", a)
	}
	divisor := gguf.QueryScale(a, l.Layers, l.Hidden, l.Heads, l.HeadDim)
	if l.Scale != float32(1/math.Sqrt(float64(divisor))) {
		return nil, fmt.Errorf("its scores are multiplied by %v, and in GGUF files of %s by 1/√%d",
			l.Scale, a, divisor)
	}
	if l.ScoreCap > 0 || l.LogitCap > 0 {
		list = append(list,
			gguf.Pair{Key: a + ".attn_logit_softcapping", Value: float64(l.ScoreCap)},
			gguf.Pair{Key: a + ".final_logit_softcapping", Value: float64(l.LogitCap)})
	}
	tokens, err := w.tokenizer()
	return append(list, tokens...), err
}

// usualGemma refuses what the metadata of the family cannot say.
func usualGemma(l *model.Layout, architecture string) error {
	pattern := gguf.Gemma3Pattern
	if architecture == "gemma2" {
		pattern = gguf.Gemma2Pattern
	} else if l.LocalTheta != gguf.Gemma3LocalTheta {
		return fmt.Errorf("its sliding layers turn with a base of %v, and GGUF files of this "+
			"family have %v", l.LocalTheta, gguf.Gemma3LocalTheta)
	}
	for i, sliding := range l.Sliding {
		if sliding == ((i+1)%pattern == 0) {
			return fmt.Errorf("layer %d is not what it is in GGUF files of this family, where "+
				"every layer but each %dth has the window", i, pattern)
		}
	}
	return nil
}

// document is what is read of a tokenizer.json.
type document struct {
	AddedTokens []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer   component `json:"normalizer"`
	PreTokenizer component `json:"pre_tokenizer"`
	Model        struct {
		Vocab        map[string]int  `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Unknown      string          `json:"unk_token"`
	} `json:"model"`
}

// component is a normalizer or pre-tokenizer, or several.
type component struct {
	Type          string      `json:"type"`
	Normalizers   []component `json:"normalizers"`
	PreTokenizers []component `json:"pretokenizers"`
	Pattern       struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
	Prepend string `json:"prepend"`
	Alone   bool   `json:"individual_digits"`
	Scheme  string `json:"prepend_scheme"`
}

// flat lists a component's parts.
func (c component) flat() []component {
	parts := slices.Concat(c.Normalizers, c.PreTokenizers)
	if c.Type != "Sequence" {
		return []component{c}
	}
	return parts
}

// Kinds of tokens, as the format numbers them.
const (
	kindNormal  = 1
	kindUnknown = 2
	kindControl = 3
	kindUser    = 4
	kindByte    = 6
	kindUnused  = 5
)

// tokenizer is the metadata of the tokenizer.
func (w *writing) tokenizer() ([]gguf.Pair, error) {
	data, err := fs.ReadFile(w.Files, "tokenizer.json")
	var d document
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	loaded, err := tokenizer.Load(w.Files)
	if err != nil {
		return nil, err
	}
	merges, err := d.merges()
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: merges: %w", err)
	}
	tokens, kinds, err := d.tokens(w.layout.Vocabulary)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	list := []gguf.Pair{
		{Key: "tokenizer.ggml.tokens", Value: tokens},
		{Key: "tokenizer.ggml.token_type", Value: kinds},
	}
	if d.Model.ByteFallback {
		list = append(list, gguf.Pair{Key: "tokenizer.ggml.model", Value: "llama"},
			gguf.Pair{Key: "tokenizer.ggml.pre", Value: "default"},
			gguf.Pair{Key: "tokenizer.ggml.scores", Value: scores(tokens, merges)},
			gguf.Pair{Key: "tokenizer.ggml.add_space_prefix", Value: d.prefixed()})
	} else {
		name, ok := d.preName()
		if !ok {
			return nil, errors.New("tokenizer.json: its pre_tokenizer has no name in GGUF")
		}
		joined := make([]string, len(merges))
		for i, m := range merges {
			joined[i] = m[0] + " " + m[1]
		}
		list = append(list, gguf.Pair{Key: "tokenizer.ggml.model", Value: "gpt2"},
			gguf.Pair{Key: "tokenizer.ggml.pre", Value: name},
			gguf.Pair{Key: "tokenizer.ggml.merges", Value: joined})
	}
	return append(list, w.special(loaded, d.Model.Vocab[d.Model.Unknown])...), nil
}

// special names the tokens around a text, and the chat template.
func (w *writing) special(t *tokenizer.Tokenizer, unknown int) []gguf.Pair {
	first := t.Encode("", tokenizer.EncodeOptions{AddSpecial: true})
	list := []gguf.Pair{
		{Key: "tokenizer.ggml.add_bos_token", Value: len(first) > 0},
		{Key: "tokenizer.ggml.unknown_token_id", Value: unknown},
	}
	if bos := w.layout.BOS; bos >= 0 {
		list = append(list, gguf.Pair{Key: "tokenizer.ggml.bos_token_id", Value: int(bos)})
	} else if len(first) > 0 {
		list = append(list, gguf.Pair{Key: "tokenizer.ggml.bos_token_id", Value: int(first[0])})
	}
	for i, id := range w.layout.EOS {
		if i == 0 {
			list = append(list, gguf.Pair{Key: "tokenizer.ggml.eos_token_id", Value: int(id)})
		} else if i == 1 {
			list = append(list, gguf.Pair{Key: "tokenizer.ggml.eot_token_id", Value: int(id)})
		}
	}
	templates := t.Templates()
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		key := "tokenizer.chat_template"
		if name != "default" {
			key += "." + name
		}
		list = append(list, gguf.Pair{Key: key, Value: templates[name]})
	}
	return list
}

// merges are pairs, or in older files two tokens with a space between.
func (d *document) merges() ([][2]string, error) {
	var pairs [][2]string
	if json.Unmarshal(d.Model.Merges, &pairs) == nil {
		return pairs, nil
	}
	var lines []string
	if err := json.Unmarshal(d.Model.Merges, &lines); err != nil {
		return nil, err
	}
	for i, line := range lines {
		at := slices.Index([]byte(line), ' ')
		if at < 0 {
			return nil, fmt.Errorf("line %d is not two tokens", i+1)
		}
		pairs = append(pairs, [2]string{line[:at], line[at+1:]})
	}
	return pairs, nil
}

// tokens lists the vocabulary by ID, with names of their own for rows of the embedding that no
// token has.
func (d *document) tokens(rows int) ([]string, []int32, error) {
	tokens, kinds := make([]string, rows), make([]int32, rows)
	set := func(id int, text string, kind int32) error {
		if id < 0 || id >= rows {
			return fmt.Errorf("token %d, %q, has no row among the embedding's %d", id, text, rows)
		}
		tokens[id], kinds[id] = text, kind
		return nil
	}
	for text, id := range d.Model.Vocab {
		kind := int32(kindNormal)
		if len(text) == 6 && text[:3] == "<0x" && text[5] == '>' && d.Model.ByteFallback {
			kind = kindByte
		}
		if err := set(id, text, kind); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range d.AddedTokens {
		kind := int32(kindUser)
		if t.Special {
			kind = kindControl
		}
		if t.Content == d.Model.Unknown {
			kind = kindUnknown
		}
		if err := set(t.ID, t.Content, kind); err != nil {
			return nil, nil, err
		}
	}
	for id := range tokens {
		if kinds[id] == 0 {
			tokens[id], kinds[id] = fmt.Sprintf("[PAD%d]", id), kindUnused
		}
	}
	return tokens, kinds, nil
}

// scores rank pieces by the first merge that builds them. What no merge builds has the score 0,
// which is never compared.
func scores(tokens []string, merges [][2]string) []float32 {
	rank := map[string]int{}
	for i, m := range merges {
		if _, ok := rank[m[0]+m[1]]; !ok {
			rank[m[0]+m[1]] = i + 1
		}
	}
	out := make([]float32, len(tokens))
	for id, text := range tokens {
		out[id] = float32(-rank[text])
	}
	return out
}

// prefixed says whether a text gets a space in front.
func (d *document) prefixed() bool {
	return slices.ContainsFunc(slices.Concat(d.Normalizer.flat(), d.PreTokenizer.flat()),
		func(c component) bool {
			return c.Type == "Prepend" ||
				c.Type == "Metaspace" && cmp.Or(c.Scheme, "always") != "never"
		})
}

// preName finds how GGUF calls the pre-tokenizer.
func (d *document) preName() (string, bool) {
	pattern, digits := "", false
	for _, c := range d.PreTokenizer.flat() {
		switch {
		case c.Type == "ByteLevel":
		case c.Type == "Split" && c.Pattern.Regex != "" && pattern == "":
			pattern = c.Pattern.Regex
		case c.Type == "Digits" && c.Alone && !digits:
			digits = true
		default:
			return "", false
		}
	}
	return gguf.PreName(pattern, digits, d.Model.IgnoreMerges)
}
