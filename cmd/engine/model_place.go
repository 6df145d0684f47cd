package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/hub"
	"github.com/kvrelay/engine/host/model"
	"github.com/kvrelay/engine/host/model/embedded"
)

// place is where a model's files are, and what the model is called when nobody named it.
type place struct {
	path string // folder or GGUF file; "" is the embedded model
	name string
}

// files is the folder to read from: the model's own, or what a GGUF file says as one.
func (p place) files() (fs.FS, error) {
	switch {
	case p.path == "":
		return embedded.FS(), nil
	case model.IsGGUF(p.path):
		files, err := model.Folder(p.path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.path, err)
		}
		return files, nil
	}
	return os.DirFS(p.path), nil
}

// modelPlace finds the model of a configuration.
func modelPlace(cfg *config.Config) (place, error) {
	return findModel(cfg.Model.Path, filepath.Dir(cfg.File()))
}

// findModel finds what --model or model.path names: a path if it is there, else ORG/NAME in the
// hub's cache. folder is the one that the configuration's relative paths were joined to.
func findModel(path, folder string) (place, error) {
	given := place{path, modelName(path)}
	if path == "" {
		return given, nil
	}
	if info, err := os.Stat(path); err == nil {
		return given, mayBeModel(path, info)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return given, nil // Whatever is wrong with it, its reader says best.
	}
	ref, ok := modelRef(path, folder)
	if !ok && model.IsGGUF(path) {
		return place{}, fmt.Errorf("there is no file %s", path)
	}
	if !ok {
		return place{}, fmt.Errorf("there is no folder %s", path)
	}
	settings, err := hubSettings()
	if err != nil {
		return place{}, err
	}
	s, err := hub.Cache{Folder: settings.Cache}.Find(ref)
	if errors.Is(err, hub.ErrNotCached) {
		return place{}, fmt.Errorf("there is no folder %s, and the model %w; to fetch it:\n"+
			"  engine pull %s", path, err, ref)
	}
	if err != nil {
		return place{}, err
	}
	if len(s.Missing) > 0 && len(s.GGUF) > 0 {
		return cachedGGUF(ref, s)
	}
	if len(s.Missing) > 0 {
		return place{}, fmt.Errorf("of %s only a part is on this machine, it lacks %s; to fetch "+
			"the rest:\n  engine pull %s", ref, strings.Join(s.Missing, ", "), ref)
	}
	return place{s.Path, ref.Model()}, nil
}

// mayBeModel refuses what is no model without opening it: opening a pipe would wait for ever.
func mayBeModel(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return mayBeFolder(path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is %s: a model is a Hugging Face folder or a file whose name ends "+
			"in .gguf", path, kindOf(info))
	case !model.IsGGUF(path):
		return fmt.Errorf("%s is a file: a model is a Hugging Face folder or a file whose name "+
			"ends in .gguf", path)
	}
	return nil
}

// mayBeFolder refuses a folder that has something else than files where a model's are read, and one
// that has GGUF files alone.
func mayBeFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // Its reader says it best.
	}
	var files []string
	whole := false
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".json", ".safetensors", ".jinja":
			info, err := os.Stat(filepath.Join(path, e.Name()))
			if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
				return fmt.Errorf("%s in %s is %s, not a file", e.Name(), path, kindOf(info))
			}
			whole = true
		case ".gguf":
			last := len(files) - 1
			if last < 0 || !model.SameGGUF(files[last], e.Name()) {
				files = append(files, e.Name())
			}
		}
	}
	const most = 8
	if more := len(files) - most; more > 0 {
		files = append(files[:most], fmt.Sprintf("and %d more", more))
	}
	if len(files) > 0 && !whole {
		return fmt.Errorf("%s is no model's folder, it has no config.json; name one of the GGUF "+
			"files in it: %s", path, strings.Join(files, ", "))
	}
	return nil
}

// kindOf says what something is that is neither a folder nor a file.
func kindOf(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "neither a folder nor a file"
}

// cachedGGUF is the one GGUF file of a snapshot, which may be in parts.
func cachedGGUF(ref hub.Ref, s hub.Snapshot) (place, error) {
	first := s.GGUF[0]
	for _, name := range s.GGUF[1:] {
		if !model.SameGGUF(first, name) {
			return place{}, fmt.Errorf("of %s several GGUF files are on this machine; name one of "+
				"%s in %s", ref, strings.Join(s.GGUF, ", "), s.Path)
		}
	}
	return place{filepath.Join(s.Path, filepath.FromSlash(first)), ref.Model()}, nil
}

// modelRef reads a path that is not there as ORG/NAME, as it was before it was joined to folder.
func modelRef(path, folder string) (hub.Ref, bool) {
	if ref, err := hub.ParseRef(filepath.ToSlash(path)); err == nil {
		return ref, true
	}
	relative, err := filepath.Rel(folder, path)
	if err != nil {
		return hub.Ref{}, false
	}
	ref, err := hub.ParseRef(filepath.ToSlash(relative))
	return ref, err == nil
}

// hubSettings are those of the environment.
func hubSettings() (hub.Settings, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // The environment may say all that is needed.
	}
	return hub.FromEnvironment(os.Getenv, home)
}
