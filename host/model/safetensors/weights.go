package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kvrelay/engine/host/model/mmap"
)

// The names of the files of a checkpoint folder.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// maxShards bounds how many files an index may name.
const maxShards = 10_000

// Weights are the tensors of a checkpoint, from one file or from shards.
type Weights struct {
	tensors map[string]Tensor
	release []func() error
	forget  func([]byte) // nil where the bytes are no mapping
}

// source gives a file's bytes and a function that lets go of them.
type source func(name string) (data []byte, release func() error, err error)

// Open maps the weight files of a folder into memory where the system can, and reads them
// elsewhere. They must not change until Close, after which no tensor may be used.
func Open(folder string) (*Weights, error) {
	w, err := open(func(name string) ([]byte, func() error, error) {
		return mmap.File(filepath.Join(folder, name))
	})
	if err == nil {
		w.forget = mmap.Forget
	}
	return w, err
}

// OpenFS reads the weight files of a file system, such as an embedded one.
func OpenFS(files fs.FS) (*Weights, error) {
	return open(func(name string) ([]byte, func() error, error) {
		data, err := fs.ReadFile(files, name)
		return data, func() error { return nil }, err
	})
}

func open(read source) (*Weights, error) {
	w := &Weights{tensors: map[string]Tensor{}}
	err := w.load(read)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// load reads the single file if it is there, else the shards of the index.
func (w *Weights) load(read source) error {
	err := w.add(read, singleFile, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	data, release, err := read(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("neither %s nor %s is there: only safetensors weights are read",
			singleFile, indexFile)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", indexFile, err)
	}
	index, err := parseIndex(data)
	if err = errors.Join(err, release()); err != nil {
		return fmt.Errorf("%s: %w", indexFile, err)
	}
	return w.addShards(read, index)
}

// addShards reads every shard once and checks that the index and the shards tell the same.
func (w *Weights) addShards(read source, index map[string]string) error {
	var shards []string
	for _, shard := range index {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	if len(shards) > maxShards {
		return fmt.Errorf("%s: it names %d files, more than %d", indexFile, len(shards), maxShards)
	}
	for _, shard := range shards {
		if err := w.add(read, shard, index); err != nil {
			return fmt.Errorf("shard of %s: %w", indexFile, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(index)) {
		if _, ok := w.tensors[name]; !ok {
			return fmt.Errorf("%s: tensor %q is not in %s", indexFile, name, index[name])
		}
	}
	return nil
}

// add reads one file. With an index, tensors that it does not list are left out, and one that it
// places in another file is an error: the checkpoint holds it twice.
func (w *Weights) add(read source, file string, index map[string]string) error {
	data, release, err := read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	w.release = append(w.release, release)
	tensors, err := Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, t := range tensors {
		if index != nil && index[t.Name] == "" {
			continue
		}
		if index != nil && index[t.Name] != file {
			return fmt.Errorf("%s: tensor %q is here and, by the index, in %s",
				file, t.Name, index[t.Name])
		}
		w.tensors[t.Name] = t
	}
	return nil
}

// parseIndex reads which tensor is in which file. A file must be named without a folder: an index
// from outside cannot make us open anything else.
func parseIndex(data []byte) (map[string]string, error) {
	index := map[string]string{}
	err := eachKey(data, func(key string, d *json.Decoder) error {
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || key != "weight_map" {
			return err
		}
		return eachKey(value, func(name string, d *json.Decoder) error {
			var file string
			if err := d.Decode(&file); err != nil {
				return err
			}
			if !plainName(file) {
				return fmt.Errorf("%q is not the name of a file beside the index", file)
			}
			index[name] = file
			return nil
		})
	})
	if err == nil && len(index) == 0 {
		err = errors.New("no weight_map, or an empty one")
	}
	return index, err
}

func plainName(file string) bool {
	return filepath.IsLocal(file) && file != "." && !strings.ContainsAny(file, `/\:`+"\x00")
}

// Tensor gives a tensor by name.
func (w *Weights) Tensor(name string) (Tensor, bool) {
	t, ok := w.tensors[name]
	return t, ok
}

// Names are those of all tensors, sorted.
func (w *Weights) Names() []string { return slices.Sorted(maps.Keys(w.tensors)) }

// Forget lets go of the memory that a tensor's bytes take, until somebody looks at them again.
func (w *Weights) Forget(name string) {
	if w.forget != nil {
		w.forget(w.tensors[name].Data)
	}
}

// Close lets go of the files. The tensors' Data must not be used afterwards.
func (w *Weights) Close() error {
	var err error
	for _, release := range w.release {
		err = errors.Join(err, release())
	}
	w.release, w.tensors = nil, nil
	return err
}
