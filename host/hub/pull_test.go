package hub

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestPullMakesTheClientsLayout checks every name in the cache: they are the hub client's.
func TestPullMakesTheClientsLayout(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	s, w := pullTiny(t, h.client(t, cache))
	h.checkWhole(t, cache, s)
	want := []string{"config.json", "generation_config.json", "model.safetensors",
		"tokenizer.json", "tokenizer_config.json"}
	if got := slices.Sorted(maps.Keys(filesBelow(t, s.Path))); !slices.Equal(got, want) {
		t.Errorf("fetched %v, want %v", got, want)
	}
	folder := filepath.Join(cache, "models--acme--tiny")
	if s.Path != filepath.Join(folder, "snapshots", testCommit) || s.Commit != testCommit ||
		s.Model != "acme/tiny" || !slices.Equal(s.Refs, []string{"main"}) {
		t.Errorf("%+v", s)
	}
	for _, name := range want {
		link, err := os.Readlink(filepath.Join(s.Path, name))
		if to := "../../blobs/" + h.hashOf(name); err != nil || filepath.ToSlash(link) != to {
			t.Errorf("%s is %q, %v; want a link to %s", name, link, err, to)
		}
	}
	ref, err := os.ReadFile(filepath.Join(folder, "refs", "main"))
	if err != nil || string(ref) != testCommit {
		t.Errorf("refs/main: %q, %v", ref, err)
	}
	if w.present != 0 || len(w.done) != len(want) {
		t.Errorf("planned %v, present %d, done %v", w.planned, w.present, w.done)
	}
	for _, f := range w.planned {
		if w.bytes[f.Name] != f.Size {
			t.Errorf("%s: heard of %d bytes of %d", f.Name, w.bytes[f.Name], f.Size)
		}
	}
	// Again: everything is here.
	before := h.count("GET")
	_, w = pullTiny(t, h.client(t, cache))
	if n := h.count("GET") - before; n != 1 || w.present != len(want) || len(w.planned) != 0 {
		t.Errorf("%d requests, planned %v", n, w.planned)
	}
}

// TestPullByCommitWritesNoRef: a commit needs no name.
func TestPullByCommitWritesNoRef(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	for revision, ref := range map[string]string{testCommit: "", "refs/pr/1": "refs/pr/1"} {
		r := Ref{"acme", "tiny", revision}
		s, err := h.client(t, cache).Pull(t.Context(), r, "", &heard{})
		if err != nil {
			t.Fatal(err)
		}
		h.checkWhole(t, cache, s)
		if ref != "" && !slices.Contains(s.Refs, ref) || slices.Contains(s.Refs, "main") {
			t.Errorf("%s: refs %v", revision, s.Refs)
		}
		if found, err := (Cache{cache}).Find(r); err != nil || found.Path != s.Path {
			t.Errorf("%s: found %+v, %v", revision, found, err)
		}
	}
}

// shard splits the fake's weights in three files and an index.
func (h *fakeHub) shard() {
	delete(h.files, "model.safetensors")
	h.files["model-00001-of-00003.safetensors"] = noise(11, 300_000)
	h.files["model-00002-of-00003.safetensors"] = noise(12, 200_000)
	h.files["model-00003-of-00003.safetensors"] = noise(13, 1)
	h.files["model.safetensors.index.json"] = []byte(`{"metadata":{},"weight_map":{
		"a":"model-00001-of-00003.safetensors","b":"model-00003-of-00003.safetensors",
		"c":"model-00002-of-00003.safetensors","d":"model-00001-of-00003.safetensors"}}`)
}

func TestPullFollowsTheIndex(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	h.shard()
	h.files["model-00004-of-00004.safetensors"] = noise(14, 10) // No part of it.
	s, _ := pullTiny(t, h.client(t, cache))
	h.checkWhole(t, cache, s)
	names := filesBelow(t, s.Path)
	if names["model-00002-of-00003.safetensors"] == "" ||
		names["model-00004-of-00004.safetensors"] != "" {
		t.Errorf("fetched %v", names)
	}
	// A shard that is gone is missing, by name.
	if err := os.Remove(names["model-00002-of-00003.safetensors"]); err != nil {
		t.Fatal(err)
	}
	found, err := Cache{cache}.Find(tinyRef)
	if err != nil || !slices.Equal(found.Missing, []string{"model-00002-of-00003.safetensors"}) {
		t.Errorf("%+v, %v", found, err)
	}
	// The blob is still there: putting it back asks for no byte.
	before := h.count("GET")
	s, _ = pullTiny(t, h.client(t, cache))
	if n := h.count("GET") - before; n != 1 || len(s.Missing) != 0 {
		t.Errorf("%d requests, missing %v", n, s.Missing)
	}
}

func TestPullGGUF(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	for _, name := range []string{"tiny-Q8_0.gguf", "deep/tiny-Q4_0.gguf"} {
		s, err := h.client(t, cache).Pull(t.Context(), tinyRef, name, &heard{})
		if err != nil || !slices.Contains(s.GGUF, name) {
			t.Fatalf("%+v, %v", s, err)
		}
		data, err := os.ReadFile(filepath.Join(s.Path, filepath.FromSlash(name)))
		if err != nil || sha256Of(data) != h.hashOf(name) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"tiny-Q9.gguf": "it has deep/tiny-Q4_0.gguf, tiny-Q8_0.gguf",
		"config.json":  "only a .gguf file is named",
		"../x.gguf":    "has no file",
	} {
		_, err := h.client(t, cache).Pull(t.Context(), tinyRef, name, &heard{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestPullRefusesModelsThatNoEngineLoads before it fetches any of their files.
func TestPullRefusesModelsThatNoEngineLoads(t *testing.T) {
	for want, change := range map[string]func(map[string][]byte){
		"has no tokenizer.json":        func(f map[string][]byte) { delete(f, "tokenizer.json") },
		"has no config.json":           func(f map[string][]byte) { delete(f, "config.json") },
		"engine pull acme/tiny deep/t": func(f map[string][]byte) { delete(f, singleWeights) },
		"it has original/consolidated.pth, pytorch_model.bin": func(f map[string][]byte) {
			for _, name := range []string{"model.safetensors", "tiny-Q8_0.gguf",
				"deep/tiny-Q4_0.gguf"} {
				delete(f, name)
			}
		},
	} {
		h := newFakeHub(t)
		change(h.files)
		_, err := h.client(t, t.TempDir()).Pull(t.Context(), tinyRef, "", &heard{})
		if err == nil || !strings.Contains(err.Error(), want) || h.count("GET /acme") != 0 {
			t.Errorf("%v, want %q; requests %v", err, want, h.requests)
		}
	}
	for index, want := range map[string]string{
		`{"weight_map":{"a":"model-9.safetensors"}}`: `names "model-9.safetensors", which`,
		`{"weight_map":{"a":"../x.safetensors"}}`:    "is not a file beside the index",
		`{"weight_map":{"a":".."}}`:                  "would leave the model's folder",
		`{"weight_map":{}}`:                          "names no file",
		`{"weight_map"`:                              "unexpected end",
	} {
		h := newFakeHub(t)
		h.shard()
		h.files[indexName] = []byte(index)
		cache := t.TempDir()
		_, err := h.client(t, cache).Pull(t.Context(), tinyRef, "", &heard{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", index, err, want)
		}
		if _, err := (Cache{cache}).Find(tinyRef); !errors.Is(err, ErrNotCached) {
			t.Errorf("%s: found all the same: %v", index, err)
		}
	}
}

// TestPullWithoutSizesInTheListing asks each file itself, as older hubs want it.
func TestPullWithoutSizesInTheListing(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	h.bare = true
	s, _ := pullTiny(t, h.client(t, cache))
	h.checkWhole(t, cache, s)
	if n := h.count("HEAD /acme/tiny/resolve/" + testCommit); n != 5 {
		t.Errorf("%d files were asked", n)
	}
	h.broken = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead {
			w.Header().Set("ETag", `"not a hash"`)
			w.Header().Set("Content-Length", "7")
			return true
		}
		return false
	}
	_, err := h.client(t, t.TempDir()).Pull(t.Context(), tinyRef, "", &heard{})
	if err == nil || !strings.Contains(err.Error(), "cannot be checked") {
		t.Error(err)
	}
}

func TestTwoPullsAtOnce(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	h.shard()
	var pulls sync.WaitGroup
	for range 4 {
		pulls.Go(func() {
			c := h.client(t, cache)
			c.pause = pause // Waiting for a lock has to take its time.
			if _, err := c.Pull(context.Background(), tinyRef, "", &heard{}); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	s, err := Cache{cache}.Find(tinyRef)
	if err != nil {
		t.Fatal(err)
	}
	h.checkWhole(t, cache, s)
	for path, n := range h.served {
		name := strings.TrimPrefix(path, "/acme/tiny/resolve/"+testCommit+"/")
		for file, data := range h.files {
			if (file == name || "/"+h.hashOf(file) == path) && n != len(data) {
				t.Errorf("%s: %d bytes went over the wire, it has %d", file, n, len(data))
			}
		}
	}
}

// TestPullWithoutLocks is a file system on which two may write at once: each to its own file.
func TestPullWithoutLocks(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	var pulls sync.WaitGroup
	for range 3 {
		pulls.Go(func() {
			c := h.client(t, cache)
			c.take = func(string) (*held, error) { return nil, errNoLocks }
			if _, err := c.Pull(context.Background(), tinyRef, "", &heard{}); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	s, err := Cache{cache}.Find(tinyRef)
	if err != nil {
		t.Fatal(err)
	}
	h.checkWhole(t, cache, s)
}

// TestPullWithoutLinks puts the bytes themselves into the snapshot.
func TestPullWithoutLinks(t *testing.T) {
	h, cache := newFakeHub(t), t.TempDir()
	c := h.client(t, cache)
	c.link = func(string, string) error { return errors.ErrUnsupported }
	s, _ := pullTiny(t, c)
	h.checkWhole(t, cache, s)
	for name, path := range filesBelow(t, s.Path) {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is not a file of its own: %v", name, err)
		}
	}
	// A second time everything is here.
	if _, w := pullTiny(t, c); len(w.planned) != 0 {
		t.Errorf("planned %v", w.planned)
	}
	// A blob that is already known to others is copied, not moved.
	name := filepath.Join(cache, "models--acme--tiny", blobsName, h.hashOf("config.json"))
	if err := os.Rename(filepath.Join(s.Path, "config.json"), name); err != nil {
		t.Fatal(err)
	}
	s, _ = pullTiny(t, c)
	h.checkWhole(t, cache, s)
	if _, err := os.Stat(name); err != nil {
		t.Error(err)
	}
}

func TestOfflineAsksNobody(t *testing.T) {
	h := newFakeHub(t)
	c := h.client(t, t.TempDir())
	c.settings.Offline = true
	if _, err := c.Pull(t.Context(), tinyRef, "", &heard{}); err == nil || len(h.requests) != 0 {
		t.Errorf("%v, %v", err, h.requests)
	}
}
