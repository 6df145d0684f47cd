package model

import (
	"errors"
	"io/fs"
)

// Config says what a checkpoint is, whatever its architecture.
type Config struct {
	Architecture string // as config.json names it: "LlamaForCausalLM"
	Vocabulary   int    // rows of the output head = width of a row of logits
	Layers       int
	Hidden       int
	Intermediate int
	Heads        int
	KVHeads      int
	HeadDim      int
	Context      int // positions are [0, Context)
	Tied         bool
	BOS          int32 // -1 when there is none
	EOS          []int32
	Sampling     Sampling
}

// Sampling is what generation_config.json suggests for requests that say nothing; nil means that it
// does not say.
type Sampling struct {
	Temperature *float64
	TopP        *float64
	TopK        *int
}

// ReadConfig reads config.json and generation_config.json alone, no weights: what a router or
// a check of the configuration needs.
func ReadConfig(files fs.FS) (Config, error) { return Config{}, errors.ErrUnsupported }

// Need is how many bytes of device memory a model takes.
type Need struct {
	Weights int64
	Scratch int64 // activations of one batch of MaxRows
	Token   int64 // keys and values of one token, all layers
}

// Need predicts the memory of the model from its configuration.
func (c Config) Need(o Options) Need { return Need{} }
