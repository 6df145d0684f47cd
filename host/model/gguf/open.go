package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/kvrelay/engine/host/model/mmap"
)

// partName is how the parts of a model in several files are called.
var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// maxParts bounds how many files one model may have.
const maxParts = 1024

// Parts are the files of the model that a path names, in order: those that belong to
// NAME-00002-of-00003.gguf, else the one file itself.
func Parts(path string) []string {
	name := partName.FindStringSubmatch(filepath.Base(path))
	if name == nil {
		return []string{path}
	}
	count, err := strconv.Atoi(name[3])
	if err != nil || count < 1 || count > maxParts {
		return []string{path}
	}
	var parts []string
	for i := range count {
		file := fmt.Sprintf("%s-%05d-of-%05d.gguf", name[1], i+1, count)
		parts = append(parts, filepath.Join(filepath.Dir(path), file))
	}
	return parts
}

// Open maps a file into memory where the system can, and reads it elsewhere; of a model in several
// files any one may be named. The files must not change until Close.
func Open(path string) (*File, error) {
	parts := Parts(path)
	if len(parts) == 1 {
		f, err := openPart(path)
		if err != nil {
			return nil, err
		}
		k := &keys{file: f}
		if n := k.number("split.count", 1); n > 1 {
			err = fmt.Errorf("it is a part of %v and not called NAME-00001-of-%05v.gguf, by which "+
				"the others are found", n, n)
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	var whole *File
	for i, file := range parts {
		part, err := openPart(file)
		if err == nil {
			err = part.checkPart(i, len(parts))
		}
		if err == nil && whole != nil {
			err = whole.add(part)
		}
		if err != nil {
			if whole != nil {
				err = errors.Join(err, whole.Close())
			}
			return nil, fmt.Errorf("part %d of %d: %s: %w",
				i+1, len(parts), filepath.Base(file), err)
		}
		if whole == nil {
			whole = part
		}
	}
	return whole, whole.checkWhole()
}

func openPart(path string) (*File, error) {
	data, release, err := mmap.File(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		return nil, errors.Join(err, release())
	}
	f.release = append(f.release, release)
	f.mapped = true
	return f, nil
}

// checkPart compares what a part says of itself with its name.
func (f *File) checkPart(i, parts int) error {
	k := &keys{file: f}
	number, count := k.number("split.no", 0), k.number("split.count", 1)
	if k.err == nil && (number != float64(i) || count != float64(parts)) {
		k.err = fmt.Errorf("by its own metadata it is part %v of %v", number+1, count)
	}
	if k.err != nil {
		return errors.Join(k.err, f.Close())
	}
	return nil
}

// add takes over the tensors of a further part. The first one's metadata is that of the model.
func (f *File) add(part *File) error {
	f.release = append(f.release, part.release...)
	seen := map[string]bool{}
	for _, t := range f.Tensors {
		seen[t.Name] = true
	}
	for _, t := range part.Tensors {
		if seen[t.Name] {
			return fmt.Errorf("tensor %q is in an earlier part too", t.Name)
		}
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}

// checkWhole compares the number of tensors with what the first part promises.
func (f *File) checkWhole() error {
	k := &keys{file: f}
	want := k.number("split.tensors.count", float64(len(f.Tensors)))
	if k.err == nil && want != float64(len(f.Tensors)) {
		k.err = fmt.Errorf("the parts hold %d tensors, and the first says %v", len(f.Tensors), want)
	}
	if k.err != nil {
		return errors.Join(k.err, f.Close())
	}
	return nil
}
