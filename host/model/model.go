// Package model runs a transformer over a gpu.Device: it reads a checkpoint folder, packs its weights for
// the device, owns the memory behind the KV pages, and turns a batch.Batch into rows of logits.
//
// A row's logits depend on its own sequence alone: never on the other items of the batch, nor on
// where its prompt was cut, nor on how its pages came to hold their keys and values.
package model

import (
	"errors"
	"io/fs"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/batch"
)

// Options bound what one forward pass may take.
type Options struct {
	// MaxRows is the token budget: the most rows of one batch. 0 means DefaultMaxRows.
	MaxRows int
}

// DefaultMaxRows is the token budget when Options names none.
const DefaultMaxRows = 512

// Model is one checkpoint on one device. Run is for one goroutine at a time.
type Model struct {
	config Config
}

// Load reads a Hugging Face folder: config.json, generation_config.json if there, and either
// model.safetensors or the shards that model.safetensors.index.json names. Weight files are
// memory-mapped while they are packed. Whatever the configuration asks for and this package does not
// compute is refused, with the key named.
func Load(device gpu.Device, folder string, o Options) (*Model, error) {
	return nil, errors.ErrUnsupported
}

// LoadFS is Load from a file system, such as an embedded one; weights are read, not mapped.
func LoadFS(device gpu.Device, files fs.FS, o Options) (*Model, error) {
	return nil, errors.ErrUnsupported
}

// Config says what the model is.
func (m *Model) Config() Config { return m.config }

// Digest tells checkpoints apart: equal digests mean that pages of one may be used by the other
// if the devices' Numerics are equal too.
func (m *Model) Digest() [32]byte { return [32]byte{} }

// Numerics is the numerics class of the device the model is on.
func (m *Model) Numerics() string { return "" }

// NewKV allocates the page pool that Run computes into. It replaces an earlier pool.
func (m *Model) NewKV(pages, pageSize int) (*KVStore, error) { return nil, errors.ErrUnsupported }

// Share returns a second model over the same weights, with a pool and buffers of its own, so that a
// prefill and a decode engine in one process hold the weights once. Their Runs take turns.
func (m *Model) Share() (*Model, error) { return nil, errors.ErrUnsupported }

// Run computes one batch and returns a row of Config().Vocabulary logits for each requested row, in
// item order. The rows are valid until the next Run. A batch that breaks a rule (an unknown token, a
// position outside the context, too few pages, more rows than MaxRows) is an error, and nothing was
// computed.
func (m *Model) Run(b *batch.Batch) ([][]float32, error) { return nil, errors.ErrUnsupported }

// Close releases the model's memory on the device. A shared model's weights go with the last of
// those that share them.
func (m *Model) Close() error { return nil }
