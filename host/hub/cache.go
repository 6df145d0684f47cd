package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the cache's folders.
const (
	folderPrefix = "models--"
	blobsName    = "blobs"
	refsName     = "refs"
	snapshots    = "snapshots"
	locksName    = ".locks"
	incomplete   = ".incomplete"
)

// ErrNotCached is wrapped by Find's error when the model is not on this machine.
var ErrNotCached = errors.New("not on this machine")

// Cache is a folder of models.
type Cache struct{ Folder string }

// Snapshot is one commit of a model, as far as it is on this machine.
type Snapshot struct {
	Model  string // ORG/NAME, or NAME for models without an owner
	Commit string
	// Refs are the branches and tags that stood at the commit when they were last asked for.
	Refs []string
	Path string // folder
	Size int64  // bytes of all its files
	// Missing says what an engine lacks to load it: files, or words for a kind of file.
	Missing []string
	// GGUF are the files of that kind.
	GGUF []string
}

// Find looks a model up without asking anybody. The error wraps ErrNotCached if there is nothing of
// it here; a snapshot of which something is missing is no error.
func (c Cache) Find(ref Ref) (Snapshot, error) {
	folder := filepath.Join(c.Folder, ref.folder())
	commit := ref.revision()
	if !isCommit(commit) {
		var err error
		commit, err = readRef(filepath.Join(folder, refsName, filepath.FromSlash(commit)))
		if err != nil {
			return Snapshot{}, c.notCached(ref, err)
		}
	}
	path := filepath.Join(folder, snapshots, commit)
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return Snapshot{}, c.notCached(ref, fmt.Errorf("no snapshot %s", commit))
	}
	s := inspect(path)
	s.Model, s.Commit = ref.Model(), commit
	s.Refs = refsOf(folder)[commit]
	return s, nil
}

// notCached says what is here instead.
func (c Cache) notCached(ref Ref, cause error) error {
	if !errors.Is(cause, fs.ErrNotExist) && ref.Revision == "" {
		return fmt.Errorf("%s is %w: %w", ref, ErrNotCached, cause)
	}
	entries, err := os.ReadDir(filepath.Join(c.Folder, ref.folder(), snapshots))
	if err != nil || len(entries) == 0 {
		return fmt.Errorf("%s is %w, in %s", ref, ErrNotCached, c.Folder)
	}
	var here []string
	for _, e := range entries {
		here = append(here, ref.Model()+"@"+e.Name())
	}
	return fmt.Errorf("%s is %w, only %s", ref, ErrNotCached, strings.Join(here, ", "))
}

// List returns every snapshot of every model, ordered by name and commit. A cache that is not there
// is empty.
func (c Cache) List() ([]Snapshot, error) {
	entries, err := os.ReadDir(c.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the models: %w", err)
	}
	var all []Snapshot
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), folderPrefix)
		if !ok {
			continue
		}
		folder := filepath.Join(c.Folder, e.Name())
		commits, err := os.ReadDir(filepath.Join(folder, snapshots))
		if err != nil {
			continue // Nothing was fetched of it, or it is not the client's.
		}
		refs := refsOf(folder)
		for _, commit := range commits {
			if !commit.IsDir() {
				continue
			}
			s := inspect(filepath.Join(folder, snapshots, commit.Name()))
			s.Model, s.Commit = strings.Replace(name, "--", "/", 1), commit.Name()
			s.Refs = refs[s.Commit]
			all = append(all, s)
		}
	}
	return all, nil
}

// readRef reads the commit that a branch or tag stood at.
func readRef(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const most = 128
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(data))
	if !isCommit(commit) {
		return "", fmt.Errorf("%s holds no commit", path)
	}
	return commit, nil
}

// refsOf reads which refs stand at which commit.
func refsOf(folder string) map[string][]string {
	refs := map[string][]string{}
	root := filepath.Join(folder, refsName)
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // What cannot be read names nothing.
		}
		if commit, err := readRef(path); err == nil {
			if name, err := filepath.Rel(root, path); err == nil {
				refs[commit] = append(refs[commit], filepath.ToSlash(name))
			}
		}
		return nil
	})
	return refs
}

// inspect adds up a snapshot's files and says what is missing. A link whose blob is gone is a file
// that is missing.
func inspect(path string) Snapshot {
	s := Snapshot{Path: path}
	here := map[string]bool{}
	_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		relative, err := filepath.Rel(path, name)
		if err != nil {
			return nil
		}
		relative = filepath.ToSlash(relative)
		here[relative] = true
		s.Size += info.Size()
		if strings.HasSuffix(relative, ".gguf") {
			s.GGUF = append(s.GGUF, relative)
		}
		return nil
	})
	for _, name := range required() {
		if !here[name] {
			s.Missing = append(s.Missing, name)
		}
	}
	s.Missing = append(s.Missing, missingWeights(path, here)...)
	return s
}

// missingWeights lists the weight files that are not here.
func missingWeights(path string, here map[string]bool) []string {
	if here[singleWeights] {
		return nil
	}
	if !here[indexName] {
		return []string{singleWeights}
	}
	data, err := readIndex(filepath.Join(path, indexName))
	if err != nil {
		return []string{indexName}
	}
	shards, err := shardsOf(data)
	if err != nil {
		return []string{indexName}
	}
	return slices.DeleteFunc(shards, func(name string) bool { return here[name] })
}
