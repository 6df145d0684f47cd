// Package gguf reads model files in the GGUF format, versions 2 and 3: a header, metadata, the
// names, types and places of tensors, then their bytes. It also shows such a file as the Hugging
// Face folder that it was made from: the configuration, the tokenizer and the names and row order
// of the tensors (folder.go, weights.go).
//
// The format is that of the ggml project's document "GGUF file format". Input is taken as hostile:
// reading allocates no more than the file's own size justifies, and each fault is one clear error.
package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// Tensor is one array. Shape is row-major, the outermost dimension first, the reverse of the
// file's order. Data is a part of the file and must not be changed; it need not be aligned.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int
	Data  []byte
}

// File is one model, of one file or of several parts.
type File struct {
	Version int
	Tensors []Tensor // in the order of the file

	values  map[string]value
	release []func() error
	mapped  bool // the tensors' bytes are a mapping of the file
}

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	maxDimensions    = 4
	maxKey           = 1 << 16 // bytes of a key, the format's own limit
	// What a tensor and a key take at least in the file: their counts are checked against it.
	minTensorInfo = 8 + 4 + 8 + 4 + 8
	minKey        = 8 + 4 + 1
)

// Parse reads one file, which may be one part of several. The tensors share its memory.
func Parse(data []byte) (*File, error) {
	c := &cursor{data: data}
	if string(c.take(4, "the magic number")) != magic {
		return nil, errors.New("not a GGUF file: it does not begin with GGUF")
	}
	f := &File{values: map[string]value{}}
	version := c.u32("the version")
	switch {
	case c.err != nil:
		return nil, c.err
	case version == 1:
		return nil, errors.New("GGUF version 1 is not read; convert the model again")
	case bits.ReverseBytes32(version) <= 3:
		return nil, errors.New("a big-endian GGUF file is not read; convert the model again")
	case version != 2 && version != 3:
		return nil, fmt.Errorf("GGUF version %d is not known; 2 and 3 are", version)
	}
	f.Version = int(version)
	tensors := c.count(minTensorInfo, "the number of tensors")
	keys := c.count(minKey, "the number of keys")
	if err := f.readKeys(c, keys); err != nil {
		return nil, err
	}
	infos, err := readInfos(c, tensors)
	if err != nil {
		return nil, err
	}
	return f, f.place(infos, c)
}

// readKeys reads the metadata.
func (f *File) readKeys(c *cursor, n uint64) error {
	for i := range n {
		key := c.text(maxKey, "a key's name")
		v := c.value(key)
		if c.err != nil {
			return fmt.Errorf("metadata key %d of %d: %w", i+1, n, c.err)
		}
		if _, ok := f.values[key]; ok {
			return fmt.Errorf("metadata key %q comes twice", key)
		}
		f.values[key] = v
	}
	return c.err
}

// info is what the file says of one tensor.
type info struct {
	Tensor
	offset, size uint64 // bytes within the data
}

func readInfos(c *cursor, n uint64) ([]info, error) {
	if c.err != nil {
		return nil, c.err
	}
	infos := make([]info, 0, n)
	seen := map[string]bool{}
	for i := range n {
		var t info
		t.Name = c.text(maxKey, "a tensor's name")
		dimensions := c.u32("its number of dimensions")
		if c.err == nil && (dimensions < 1 || dimensions > maxDimensions) {
			c.err = fmt.Errorf("%d dimensions; 1 to %d are possible", dimensions, maxDimensions)
		}
		for range min(dimensions, maxDimensions) {
			d := c.u64("a dimension")
			if c.err == nil && (d < 1 || d > math.MaxInt32) {
				c.err = fmt.Errorf("a dimension of %d; 1 to %d are possible", d, math.MaxInt32)
			}
			t.Shape = append(t.Shape, int(d))
		}
		t.Type = Type(c.u32("its type"))
		t.offset = c.u64("its offset")
		if c.err == nil {
			t.size, c.err = t.Type.bytes(t.Shape)
		}
		if c.err != nil {
			return nil, fmt.Errorf("tensor %d of %d, %q: %w", i+1, n, t.Name, c.err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor %q comes twice", t.Name)
		}
		seen[t.Name] = true
		slices.Reverse(t.Shape)
		infos = append(infos, t)
	}
	return infos, nil
}

// bytes is the size of a tensor whose rows are shape[0] long.
func (t Type) bytes(shape []int) (uint64, error) {
	form, ok := t.form()
	if !ok {
		return 0, fmt.Errorf("type %d is not known", uint32(t))
	}
	if shape[0]%form.block != 0 {
		return 0, fmt.Errorf("rows of %d elements are not whole blocks of %v, which are %d",
			shape[0], t, form.block)
	}
	size := uint64(shape[0]/form.block) * uint64(form.bytes)
	for _, n := range shape[1:] {
		high, low := bits.Mul64(size, uint64(n))
		if high != 0 {
			return 0, fmt.Errorf("%d elements a row and %v rows are too many", shape[0], shape[1:])
		}
		size = low
	}
	return size, nil
}

// place cuts the data into tensors, which follow one another without gaps but for the alignment, as
// the format wants it: a gap or an overlap is a type or a shape that is not the one written.
func (f *File) place(infos []info, c *cursor) error {
	alignment, err := f.alignment()
	if err != nil {
		return err
	}
	start := (uint64(c.at) + alignment - 1) / alignment * alignment
	if start > uint64(len(c.data)) {
		start = uint64(len(c.data)) // Only a file without tensors may end here.
	}
	data := c.data[start:]
	for i := range infos {
		t := &infos[i]
		switch {
		case t.offset%alignment != 0:
			return fmt.Errorf("tensor %q: offset %d is no multiple of the alignment %d",
				t.Name, t.offset, alignment)
		case t.offset > uint64(len(data)) || t.size > uint64(len(data))-t.offset:
			return fmt.Errorf("tensor %q: its %d bytes at %d lie beyond the file's %d data bytes: "+
				"truncated?", t.Name, t.size, t.offset, len(data))
		}
		t.Data = data[t.offset:][:t.size:t.size]
		f.Tensors = append(f.Tensors, t.Tensor)
	}
	slices.SortFunc(infos, func(a, b info) int { return cmp.Compare(a.offset, b.offset) })
	end, last := uint64(0), "the file's header"
	for _, t := range infos {
		switch next := (end + alignment - 1) / alignment * alignment; {
		case t.offset < end:
			return fmt.Errorf("tensor %q overlaps %s: it starts at byte %d of the data, before %d",
				t.Name, last, t.offset, end)
		case t.offset != next:
			return fmt.Errorf("tensor %q starts at byte %d of the data, but %s ends at %d: the "+
				"type or the shape of one is not the one it was written with", t.Name, t.offset,
				last, end)
		}
		end, last = t.offset+t.size, strconv.Quote(t.Name)
	}
	return nil
}

func (f *File) alignment() (uint64, error) {
	k := &keys{file: f}
	n := uint64(k.count("general.alignment", defaultAlignment, maxAlignment))
	if k.err == nil && n&(n-1) != 0 {
		k.err = fmt.Errorf(`"general.alignment" is %d, no power of two`, n)
	}
	return n, k.err
}

// Close lets go of the file. Nothing read from it may be used afterwards.
func (f *File) Close() error {
	var err error
	for _, release := range f.release {
		err = errors.Join(err, release())
	}
	f.release, f.Tensors, f.values = nil, nil, nil
	return err
}
