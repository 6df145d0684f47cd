package model

import (
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// checkpoint is a model's stored weights under the names of the Hugging Face layout, whatever the
// format of the file.
type checkpoint interface {
	// Tensor gives a tensor by name.
	Tensor(name string) (stored, bool)
	// Forget says that nobody looks at a tensor's data again: their memory may go.
	Forget(name string)
	// Names are those of all tensors, sorted.
	Names() []string
	// Close lets go of the files. Tensors' data must not be used afterwards.
	Close() error
}

// stored is one tensor of a checkpoint.
type stored struct {
	name   string
	format string // its type as the file calls it
	dtype  gpu.DType
	usable bool // whether dtype is set: the type is one that weights may have
	shape  []int
	size   int           // of the data in bytes
	data   func() []byte // may make a copy
}

// safeWeights are the weights of a folder.
type safeWeights struct{ *safetensors.Weights }

// safeTypes are the types of safetensors that weights may have. It is never written.
var safeTypes = map[safetensors.DType]gpu.DType{
	safetensors.F32: gpu.F32, safetensors.F16: gpu.F16, safetensors.BF16: gpu.BF16,
}

func (w safeWeights) Tensor(name string) (stored, bool) {
	t, ok := w.Weights.Tensor(name)
	dtype, usable := safeTypes[t.DType]
	return stored{t.Name, string(t.DType), dtype, usable, t.Shape, len(t.Data),
		func() []byte { return t.Data }}, ok
}

// ggufWeights are the weights of a GGUF file.
type ggufWeights struct{ *gguf.Weights }

// ggufTypes are the types of GGUF that weights may have. It is never written.
var ggufTypes = map[gguf.Type]gpu.DType{
	gguf.F32: gpu.F32, gguf.F16: gpu.F16, gguf.BF16: gpu.BF16,
	gguf.Q8_0: gpu.Q8_0, gguf.Q4_0: gpu.Q4_0, gguf.Q4_1: gpu.Q4_1,
	gguf.Q5_0: gpu.Q5_0, gguf.Q5_1: gpu.Q5_1,
	gguf.Q4_K: gpu.Q4_K, gguf.Q5_K: gpu.Q5_K, gguf.Q6_K: gpu.Q6_K,
}

func (w ggufWeights) Tensor(name string) (stored, bool) {
	t, ok := w.Weights.Tensor(name)
	dtype, usable := ggufTypes[t.Type]
	return stored{t.Name, t.Type.String(), dtype, usable, t.Shape, len(t.Data),
		func() []byte { return w.Data(name) }}, ok
}

// ggufSuffix is how the name of a GGUF file ends.
const ggufSuffix = ".gguf"

// IsGGUF says whether a path names a GGUF file and not a folder.
func IsGGUF(path string) bool { return strings.HasSuffix(strings.ToLower(path), ggufSuffix) }

// Folder is the small files of a GGUF file, such as config.json and tokenizer.json, made from its
// metadata: what Load computes with and what a tokenizer is loaded from.
func Folder(path string) (fs.FS, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Folder()
}

// SizeGGUF is what a GGUF file takes, with all its parts.
func SizeGGUF(path string) (int64, error) {
	total := int64(0)
	for _, part := range gguf.Parts(path) {
		info, err := os.Stat(part)
		if err != nil {
			return 0, err
		}
		total += info.Size()
	}
	return total, nil
}

// SameGGUF says whether two paths name parts of one model.
func SameGGUF(a, b string) bool { return slices.Equal(gguf.Parts(a), gguf.Parts(b)) }
