package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/model/gguf"
	"github.com/kvrelay/engine/host/model/safetensors"
)

// Survey checks the tensors of a model as Load does, by the headers of its files: that all are
// there, of the shapes that the configuration makes them and of types that weights may have, and no
// others. It reads no weights. The types are those of the matrices that activations are multiplied
// by, as they will be in memory.
func Survey(path string, o Options) (types []gpu.DType, err error) {
	if IsGGUF(path) {
		return surveyGGUF(path, o)
	}
	w, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	types, err = survey(os.DirFS(path), safeWeights{w}, o)
	return types, errors.Join(err, w.Close())
}

// SurveyFS is Survey of a file system, such as an embedded one; it reads the files whole.
func SurveyFS(files fs.FS, o Options) (types []gpu.DType, err error) {
	w, err := safetensors.OpenFS(files)
	if err != nil {
		return nil, err
	}
	types, err = survey(files, safeWeights{w}, o)
	return types, errors.Join(err, w.Close())
}

func surveyGGUF(path string, o Options) ([]gpu.DType, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files, err := f.Settings()
	if err != nil {
		return nil, err
	}
	w, err := f.Weights()
	if err != nil {
		return nil, err
	}
	types, err := survey(files, ggufWeights{w}, o)
	return types, inWordsOf(files, err)
}

func survey(files fs.FS, stored checkpoint, o Options) (types []gpu.DType, err error) {
	b, err := readBlueprint(files)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	b.tensors(func(name string, shape ...int) {
		t, wrong := find(stored, name, shape)
		if wrong == nil && len(shape) == 1 {
			wrong = vectorType(name, t.dtype)
		}
		if err == nil {
			err = wrong
		}
		taken[name] = true
		if o.DType != nil {
			t.dtype = *o.DType
		}
		lookedUp := name == b.embedding && len(b.head.parts) > 0
		if len(shape) == 2 && !lookedUp && !slices.Contains(types, t.dtype) {
			types = append(types, t.dtype)
		}
	})
	if err == nil {
		err = unused(b, stored, taken)
	}
	if err != nil {
		return nil, err
	}
	return types, nil
}

// find is a tensor of that shape, of a type that weights may have.
func find(files checkpoint, name string, shape []int) (stored, error) {
	t, ok := files.Tensor(name)
	switch {
	case !ok:
		return t, fmt.Errorf("tensor %q is missing", name)
	case !slices.Equal(t.shape, shape):
		return t, fmt.Errorf("tensor %q has shape %v, the configuration makes it %v", name, t.shape,
			shape)
	case !t.usable:
		return t, fmt.Errorf("tensor %q is %s; weights may be F32, F16, BF16, Q8_0, Q4_0, Q4_1, "+
			"Q5_0, Q5_1, Q4_K, Q5_K or Q6_K", name, t.format)
	}
	return t, nil
}

// vectorType refuses a vector in blocks.
func vectorType(name string, dtype gpu.DType) error {
	if dtype.Quantised() {
		return fmt.Errorf("tensor %q is %v; a vector may be F32, F16 or BF16", name, dtype)
	}
	return nil
}
