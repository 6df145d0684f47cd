// Package model runs a transformer over a gpu.Device: it reads a checkpoint folder
// or GGUF file, packs its weights for the device, owns the memory behind the KV pages, and turns a
// batch.Batch into rows of logits.
//
// A row's logits depend on its own sequence alone: never on the other items of the batch, nor on
// where its prompt was cut, nor on how its pages came to hold their keys and values.
package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// Options say how a model is loaded and what one forward pass may take.
type Options struct {
	// MaxRows is the token budget: the most rows of one batch. 0 means DefaultMaxRows.
	MaxRows int
	// DType is the type of matrices in memory; nil keeps each as it is stored. F16 and BF16 become
	// F32 exactly; what becomes shorter is rounded to the nearest, ties to even, and a number too
	// large for it is an error. Norms and biases are always F32.
	DType *gpu.DType
	// KV is the type in which keys and values are kept: F32, F16, BF16 or Q8_0. It changes what is
	// computed, so both ends of a hand-off must have the same. See ErrKVType.
	KV gpu.DType
	// Sinks is how many first tokens stay visible beside a sliding window. A model without one
	// refuses any.
	Sinks int
	// Admit is asked once, before weights are copied, with what the model will take on the device;
	// its error ends the load. nil admits all.
	Admit func(Need) error
	// Progress hears how many bytes of the weight files are copied, of how many; done equals total
	// once at the end. It is called often, from the goroutine that loads; its error ends the load.
	// nil hears nothing.
	Progress func(done, total int64) error
}

// DefaultMaxRows is the token budget when Options names none.
const DefaultMaxRows = 512

// maxRows bounds Options.MaxRows.
const maxRows = 1 << 20

// rows is MaxRows with its default.
func (o Options) rows() int {
	if o.MaxRows == 0 {
		return DefaultMaxRows
	}
	return o.MaxRows
}

// Model is one checkpoint on one device. Run is for one goroutine at a time.
type Model struct {
	device  gpu.Device
	options Options
	weights *weights // nil once closed
	scratch *scratch
	kv      *KVStore // nil before NewKV
}

// Load reads a Hugging Face folder: config.json, generation_config.json if there, and either
// model.safetensors or the shards that model.safetensors.index.json names. Weight files are
// memory-mapped while they are packed. Whatever the configuration asks for and this package does
// not compute is refused, with the key named.
//
// A path that ends in .gguf is a GGUF file and gives the same model as the folder that it was made
// from, as far as its weights are the same.
func Load(device gpu.Device, path string, o Options) (*Model, error) {
	read := loadFolder
	if IsGGUF(path) {
		read = loadGGUF
	}
	m, err := read(device, path, o)
	if err != nil {
		return nil, fmt.Errorf("load model %s: %w", path, err)
	}
	return m, nil
}

func loadFolder(device gpu.Device, folder string, o Options) (*Model, error) {
	return load(device, os.DirFS(folder), o, func() (checkpoint, error) {
		w, err := safetensors.Open(folder)
		return safeWeights{w}, err
	})
}

func loadGGUF(device gpu.Device, path string, o Options) (*Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	files, err := f.Settings()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w, err := f.Weights()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m, err := load(device, files, o, func() (checkpoint, error) { return ggufWeights{w}, nil })
	if err != nil {
		err = errors.Join(inWordsOf(files, err), f.Close())
	}
	return m, err
}

// LoadFS is Load from a file system, such as an embedded one; weights are read, not mapped.
func LoadFS(device gpu.Device, files fs.FS, o Options) (*Model, error) {
	m, err := load(device, files, o, func() (checkpoint, error) {
		w, err := safetensors.OpenFS(files)
		return safeWeights{w}, err
	})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	return m, nil
}

func load(
	device gpu.Device, files fs.FS, o Options, open func() (checkpoint, error),
) (*Model, error) {
	if o.MaxRows < 0 || o.MaxRows > maxRows {
		return nil, fmt.Errorf("%d rows a batch; 1 to %d are possible", o.MaxRows, maxRows)
	}
	b, err := readBlueprint(files)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.keepSinks(o.Sinks), b.KeepsKV(o.KV)); err != nil {
		return nil, err
	}
	stored, err := open()
	if err != nil {
		return nil, err
	}
	w, err := build(device, b, stored, o)
	if err = errors.Join(err, stored.Close()); err != nil {
		return nil, err
	}
	return newModel(device, o, w)
}

func newModel(device gpu.Device, o Options, w *weights) (*Model, error) {
	s, err := newScratch(device, sizesOf(w.blueprint.Config, o.rows()))
	if err != nil {
		return nil, fmt.Errorf("buffers for %d rows a batch: %w", o.rows(), err)
	}
	return &Model{device: device, options: o, weights: w, scratch: s}, nil
}

// Share returns a second model over the same weights, with a pool and buffers of its own, so that
// a prefill and a decode engine in one process hold the weights once. Their Runs take turns;
// a LayerDone hook runs within the turn and must not wait for the other model.
func (m *Model) Share() (*Model, error) {
	if m.weights == nil {
		return nil, errClosed
	}
	return newModel(m.device, m.options, m.weights)
}

// Config says what the model is. The model must be open.
func (m *Model) Config() Config { return m.weights.blueprint.Config }

// MaxRows is the most rows of one batch.
func (m *Model) MaxRows() int { return m.options.rows() }

// Digest tells checkpoints apart: equal digests mean that pages of one may be used by the other if
// the devices' Numerics are equal too. It covers the numbers of the configuration that change the
// computation, and the weights, of large ones evenly spread samples.
func (m *Model) Digest() [32]byte { return m.weights.digest }

// Numerics is the numerics class that the model's weights are computed in on its device: settings
// for weights of other types do not show in it.
func (m *Model) Numerics() string {
	if d, ok := m.device.(interface{ NumericsOf([]gpu.DType) string }); ok {
		return d.NumericsOf(m.weights.types)
	}
	return m.device.Numerics()
}

// DeviceName names the device that the model is on, by what the model's own weights use of it.
func (m *Model) DeviceName() string {
	if d, ok := m.device.(interface{ NameIn(class string) string }); ok {
		return d.NameIn(m.Numerics())
	}
	return m.device.Name()
}

// NewKV allocates the page pool that Run computes into. It replaces an earlier pool.
func (m *Model) NewKV(pages, pageSize int) (*KVStore, error) {
	if m.weights == nil {
		return nil, errClosed
	}
	if pages < 1 || pages > maxPages || pageSize < 1 || pageSize > maxPageSize {
		return nil, fmt.Errorf("page pool: %d pages of %d tokens; 1 to %d of 1 to %d are possible",
			pages, pageSize, maxPages, maxPageSize)
	}
	shape := m.Config().kvShape(m.options.KV, pages, pageSize)
	kv, err := m.device.AllocKV(shape)
	if err != nil {
		return nil, fmt.Errorf("page pool of %d pages of %d tokens: %w", pages, pageSize, err)
	}
	m.kv = &KVStore{device: m.device, kv: kv, shape: shape}
	return m.kv, nil
}

// KV is the pool made last, nil before NewKV.
func (m *Model) KV() *KVStore { return m.kv }

// Close lets go of the model's memory. Nothing may be called on it afterwards but Close. The
// weights go with the last of the models that share them.
func (m *Model) Close() error {
	m.weights, m.scratch, m.kv = nil, nil, nil
	return nil
}
