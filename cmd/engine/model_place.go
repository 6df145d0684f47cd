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
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		if model.IsGGUF(path) {
			return given, nil
		}
		return place{}, fmt.Errorf("%s is a file: a model is a Hugging Face folder or a file "+
			"whose name ends in .gguf", path)
	} else if err == nil || !errors.Is(err, fs.ErrNotExist) {
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
