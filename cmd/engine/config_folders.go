package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/kvrelay/engine/host/config"
)

// checkFolders says which of the folders that the file names can be none: something else is there
// or on the way to it. One that does not exist yet is made when it is needed.
func checkFolders(cfg *config.Config) (bad []config.Problem) {
	for _, folder := range []struct {
		key  string
		path config.Auto[string]
	}{{"node.state_dir", cfg.Node.StateDir}, {"node.cache_dir", cfg.Node.CacheDir}} {
		if !folder.path.Set {
			continue
		}
		label := ""
		switch info, err := os.Stat(folder.path.Value); {
		case err == nil && !info.IsDir():
			label = "it is a file"
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			label = err.Error()
		}
		if label == "" {
			continue
		}
		wrong := cfg.At(folder.key)
		wrong.Code, wrong.Message, wrong.Label = "E422", folder.key+" is not a folder", label
		wrong.Help = []string{"name a folder, or a path at which nothing is yet: it is made"}
		bad = append(bad, wrong)
	}
	return bad
}
