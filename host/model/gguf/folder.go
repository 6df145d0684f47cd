package gguf

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// Folder shows the file as the small files of the Hugging Face folder that it was made from:
// config.json, tokenizer.json and tokenizer_config.json. They share no memory with the file, which
// may be closed. An error says what about the metadata is not supported. InOwnWords of the result
// tells an error about its files, or about tensors by the folder's names, of the GGUF file.
func (f *File) Folder() (fs.FS, error) {
	return f.write(map[string]func() ([]byte, error){
		"config.json":           f.config,
		"tokenizer.json":        f.tokenizer,
		"tokenizer_config.json": f.tokenizerConfig,
	})
}

// Settings is Folder with config.json alone: the tokenizer's file of a large vocabulary takes a
// second to write.
func (f *File) Settings() (fs.FS, error) {
	return f.write(map[string]func() ([]byte, error){"config.json": f.config})
}

// write calls the functions that give the files.
func (f *File) write(files map[string]func() ([]byte, error)) (fs.FS, error) {
	architecture, of, err := f.family()
	if err != nil {
		return nil, err
	}
	naming, err := NamingOf(of.class)
	if err != nil {
		return nil, err
	}
	folder := folder{map[string][]byte{}, architecture, naming}
	for name, write := range files {
		data, err := write()
		if err != nil {
			return nil, err // It names the key of the metadata: the file's name is ours alone.
		}
		folder.files[name] = data
	}
	return folder, nil
}

// folder is a flat file system in memory.
type folder struct {
	files        map[string][]byte
	architecture string
	naming       *Naming
}

// InOwnWords tells an error about the folder of the file that it stands for.
func (f folder) InOwnWords(err error) error {
	if err == nil {
		return nil
	}
	return inOwnWords{err, f.architecture, f.naming}
}

// Open implements fs.FS.
func (f folder) Open(name string) (fs.File, error) {
	if data, ok := f.files[name]; ok {
		return &file{Reader: *bytes.NewReader(data), name: name}, nil
	}
	problem := fs.ErrNotExist
	if !fs.ValidPath(name) || name == "." {
		problem = fs.ErrInvalid
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: problem}
}

// ReadDir implements fs.ReadDirFS.
func (f folder) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	var entries []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		entries = append(entries, fs.FileInfoToDirEntry(about{name, int64(len(f.files[name]))}))
	}
	return entries, nil
}

// file is one file of a folder.
type file struct {
	bytes.Reader
	name string
}

var _ io.ReaderAt = (*file)(nil)

func (f *file) Close() error               { return nil }
func (f *file) Stat() (fs.FileInfo, error) { return about{f.name, f.Size()}, nil }

// about is the fs.FileInfo of a file that never changes.
type about struct {
	name string
	size int64
}

func (a about) Name() string     { return a.name }
func (about) Mode() fs.FileMode  { return 0o444 }
func (about) ModTime() time.Time { return time.Time{} }
func (about) IsDir() bool        { return false }
func (about) Sys() any           { return nil }
func (a about) Size() int64      { return a.size }
