package gguf

import (
	"encoding/binary"
	"encoding/json"
	"math"
)

// Limits of what a file may state; the model package has closer ones.
const (
	maxWidth   = 1 << 20
	maxContext = 1 << 26
)

// configuration is a config.json in the making.
type configuration struct {
	*keys
	architecture string // "llama": the prefix of its keys
	out          map[string]any

	layers, hidden, heads, headDim int
}

func (c *configuration) set(key string, value any) { c.out[key] = value }

// own, number and has read keys of the architecture, named without their prefix.
func (c *configuration) own(key string, fallback int) int {
	return c.count(c.architecture+"."+key, fallback, maxContext)
}

func (c *configuration) number(key string, fallback float64) float64 {
	return c.keys.number(c.architecture+"."+key, fallback)
}

func (c *configuration) has(key string) bool { return c.keys.has(c.architecture + "." + key) }

func (c *configuration) tensor(name string) (Tensor, bool) { return c.file.tensor(name) }

// tensor finds a tensor by its name in the file.
func (f *File) tensor(name string) (Tensor, bool) {
	for _, t := range f.Tensors {
		if t.Name == name {
			return t, true
		}
	}
	return Tensor{}, false
}

// config is the config.json of the folder that the file was made from, as far as the engine reads
// it.
func (f *File) config() ([]byte, error) {
	name, of, err := f.family()
	if err != nil {
		return nil, err
	}
	c := &configuration{keys: &keys{file: f}, architecture: name, out: map[string]any{}}
	c.layers, c.hidden = c.own("block_count", 0), c.own("embedding_length", 0)
	c.heads = c.own("attention.head_count", 0)
	c.headDim = c.own("attention.key_length", max(1, c.hidden/c.heads))
	if v := c.own("attention.value_length", c.headDim); v != c.headDim {
		c.fail("%q is %d: values of other sizes than keys, here %d, are not supported",
			name+".attention.value_length", v, c.headDim)
	}
	c.set("architectures", []string{of.class})
	c.set("num_hidden_layers", c.layers)
	c.set("hidden_size", c.hidden)
	c.set("num_attention_heads", c.heads)
	c.set("num_key_value_heads", c.own("attention.head_count_kv", c.heads))
	c.set("head_dim", c.headDim)
	c.set("intermediate_size", c.own("feed_forward_length", 0))
	c.set("max_position_embeddings", c.own("context_length", 0))
	c.set("rms_norm_eps", c.number("attention.layer_norm_rms_epsilon", 1e-5))
	c.set("rope_theta", c.number("rope.freq_base", 10000))
	c.rope()
	c.vocabulary()
	if of.settle != nil {
		of.settle(c)
	}
	if c.err != nil {
		return nil, c.err
	}
	return json.Marshal(c.out)
}

// vocabulary adds what the embedding and the tokenizer's keys say.
func (c *configuration) vocabulary() {
	embedding, ok := c.tensor(embeddingName)
	if !ok || len(embedding.Shape) != 2 {
		c.fail("tensor %q is missing, or is no matrix", embeddingName)
		return
	}
	c.set("vocab_size", embedding.Shape[0])
	bytes := 0
	for _, t := range c.file.Tensors {
		bytes += len(t.Data)
	}
	c.set("stored_bytes", bytes)
	c.set("torch_dtype", map[Type]string{F16: "float16", BF16: "bfloat16"}[embedding.Type])
	_, untied := c.tensor("output.weight")
	c.set("tie_word_embeddings", !untied)
	c.set("eos_token_id", c.endings())
	if id, ok := c.tokenID("bos_token_id"); ok {
		c.set("bos_token_id", id)
	}
}

// rope adds the scaling of the rotation.
func (c *configuration) rope() {
	dims := c.own("rope.dimension_count", c.headDim)
	if dims != c.headDim && c.architecture != "phi3" {
		c.fail("%q is %d; all %d dimensions of a head turn in models of this architecture",
			c.architecture+".rope.dimension_count", dims, c.headDim)
	}
	kind := c.text(c.architecture+".rope.scaling.type", "none")
	scaling := map[string]any{"rope_type": kind}
	if kind != "none" && kind != "" {
		scaling["factor"] = c.number("rope.scaling.factor", 1)
		if c.has("rope.scaling.original_context_length") {
			scaling["original_max_position_embeddings"] =
				c.own("rope.scaling.original_context_length", 0)
		}
		if c.has("rope.scaling.attn_factor") {
			scaling["attention_factor"] = c.number("rope.scaling.attn_factor", 1)
		}
		c.set("rope_scaling", scaling)
	}
	factors, ok := c.tensor(factorsName)
	if !ok {
		return
	}
	if factors.Type != F32 || len(factors.Shape) != 1 || factors.Shape[0] != dims/2 {
		c.fail("tensor %q has shape %v of %v; %d numbers of F32 divide the rotation's frequencies",
			factorsName, factors.Shape, factors.Type, dims/2)
		return
	}
	c.set("rope_scaling", factorScaling(factors.Data, c.number("rope.freq_base", 10000)))
}

// factorsName is the tensor of what each frequency of the rotation is divided by.
const factorsName = "rope_freqs.weight"

// factorScaling says the factors as the scaling of Llama 3.1 to 3.3 that they were computed from,
// where they are one of its two: float32 numbers are a little off what the folder's configuration
// gives. Else it hands the factors on.
func factorScaling(data []byte, theta float64) map[string]any {
	factors := make([]float64, len(data)/4)
	for i := range factors {
		factors[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	for _, factor := range []float64{8, 32} {
		if isLlama3(factors, theta, factor) {
			return map[string]any{"rope_type": "llama3", "factor": factor,
				"low_freq_factor": 1, "high_freq_factor": 4,
				"original_max_position_embeddings": llama3Context}
		}
	}
	return map[string]any{"rope_type": "factors", "factors": factors}
}

const llama3Context = 8192

// isLlama3 compares factors with those of Llama 3.1's scaling.
func isLlama3(factors []float64, theta, factor float64) bool {
	for i, f := range factors {
		turns := llama3Context * math.Pow(theta, -float64(i)/float64(len(factors))) / (2 * math.Pi)
		want := factor
		if turns > 4 {
			want = 1
		} else if turns >= 1 {
			keep := (turns - 1) / 3
			want = 1 / ((1-keep)/factor + keep)
		}
		if math.Abs(f/want-1) > 1e-6 {
			return false
		}
	}
	return true
}

// tokenID is a key of the tokenizer that names a token.
func (k *keys) tokenID(key string) (int, bool) {
	key = tokenizerPrefix + key
	if !k.has(key) {
		return 0, false
	}
	x := k.number(key, -1)
	if k.err == nil && (x != float64(int32(x)) || x < 0) {
		k.fail("%q is %v, which is no token", key, x)
	}
	return int(x), k.err == nil
}
