package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/kvrelay/engine/gpu"
)

// Config says what a checkpoint is, whatever its architecture.
type Config struct {
	Architecture string // as config.json names it: "LlamaForCausalLM"
	Vocabulary   int    // rows of the output head = width of a row of logits
	Layers       int
	Hidden       int
	Intermediate int // of the feed-forward part, or of each expert
	Experts      int // feed-forward parts of a layer that a router chooses from; 0: there is one
	Chosen       int // experts that a token goes through
	Heads        int
	KVHeads      int
	HeadDim      int
	Context      int // positions are [0, Context)
	Tied         bool
	DType        gpu.DType // of the weights, as the configuration states it
	Rope         string    // the rotation in words, equal for equal ones: "theta=10000"

	// Window is how many tokens, itself included, a token sees in layers with a sliding window; 0
	// when no layer has one. Where UniformWindow holds, every layer has it, and keys and values
	// that slid out are never looked at again: those before position - Window + 1, but for the
	// first Sinks ones. Else some layers see everything.
	Window        int
	UniformWindow bool
	Sinks         int

	BOS      int32 // -1 when there is none
	EOS      []int32
	Sampling Sampling

	matrices, vectors int64   // elements of all weights of two dimensions and of one
	theta, localTheta float64 // of the rotation; of that in sliding layers, where it is another
	storedBytes       int64   // of all weights, where a GGUF file says it; types differ in one
}

// Sampling is what generation_config.json suggests for requests that say nothing; nil means that it
// does not say.
type Sampling struct {
	Temperature *float64
	TopP        *float64
	TopK        *int
}

const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	// maxConfig bounds either file.
	maxConfig = 4 << 20
)

// ReadConfig reads config.json and generation_config.json alone, no weights: what a router or
// a check of the configuration needs. It refuses what Load would refuse.
func ReadConfig(files fs.FS) (Config, error) {
	b, err := readBlueprint(files)
	if err != nil {
		return Config{}, inWordsOf(files, err)
	}
	return b.Config, nil
}

// inWordsOf tells an error of the file that a folder stands for, where it does.
func inWordsOf(files fs.FS, err error) error {
	if f, ok := files.(interface{ InOwnWords(error) error }); ok {
		return f.InOwnWords(err)
	}
	return err
}

// readBlueprint reads both files and lets the architecture's family interpret them.
func readBlueprint(files fs.FS) (*blueprint, error) {
	data, err := readSmall(files, configFile)
	if err != nil {
		return nil, err
	}
	s, err := parseSettings(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	b, err := design(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	data, err = readSmall(files, generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err == nil {
		err = b.Config.addGeneration(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", generationFile, err)
	}
	return b, nil
}

// readSmall reads a file of at most maxConfig bytes.
func readSmall(files fs.FS, name string) ([]byte, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the model's configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read the model's configuration: %w", err)
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxConfig)
	}
	return data, nil
}

// addGeneration adds the end-of-sequence tokens and the sampling defaults of
// generation_config.json. A token that either file names ends a sequence.
func (c *Config) addGeneration(data []byte) error {
	var g struct {
		BOS         *int32   `json:"bos_token_id"`
		EOS         tokenIDs `json:"eos_token_id"`
		Temperature *float64 `json:"temperature"`
		TopP        *float64 `json:"top_p"`
		TopK        *int     `json:"top_k"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return err
	}
	c.EOS = union(c.EOS, g.EOS)
	if g.BOS != nil && c.BOS < 0 {
		c.BOS = *g.BOS
	}
	c.Sampling = Sampling{Temperature: g.Temperature, TopP: g.TopP, TopK: g.TopK}
	return nil
}

// tokenIDs is one number or a list of them, as the configuration files write eos_token_id.
type tokenIDs []int32

// UnmarshalJSON implements json.Unmarshaler.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var one int32
	if json.Unmarshal(data, &one) == nil {
		*t = tokenIDs{one}
		return nil
	}
	return json.Unmarshal(data, (*[]int32)(t))
}

// union appends to a what b has beyond it.
func union(a, b []int32) []int32 {
	seen := map[int32]bool{}
	var out []int32
	for _, list := range [][]int32{a, b} {
		for _, id := range list {
			if !seen[id] {
				seen[id] = true
				out = append(out, id)
			}
		}
	}
	return out
}
