package hub

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeHub behaves as the hub does: an API that lists files, files that git keeps from the hub
// itself, large ones by a redirect to another host, which must never see a token.
type fakeHub struct {
	model  string // ORG/NAME
	commit string
	files  map[string][]byte
	token  string // what reading needs; "" is public
	bare   bool   // the listing has no sizes and hashes

	hub, store *httptest.Server

	// broken is asked before each answer; it reports whether it has answered itself.
	broken func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string // METHOD PATH, in order
	served   map[string]int
	leaked   []string // requests elsewhere that carried a token
}

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// newFakeHub serves a small model and what an engine does not need beside it.
func newFakeHub(t testing.TB) *fakeHub {
	h := &fakeHub{model: "acme/tiny", commit: testCommit, served: map[string]int{},
		files: map[string][]byte{
			"config.json":                 []byte(`{"model_type":"llama"}`),
			"generation_config.json":      []byte(`{}`),
			"tokenizer.json":              bytes.Repeat([]byte("token "), 3000),
			"tokenizer_config.json":       []byte(`{}`),
			"model.safetensors":           noise(1, 700_000),
			"README.md":                   []byte("# tiny"),
			"pytorch_model.bin":           noise(2, 1000),
			"consolidated.safetensors":    noise(3, 1000),
			"original/consolidated.pth":   noise(4, 1000),
			"onnx/model.safetensors":      noise(5, 1000),
			"tiny-Q8_0.gguf":              noise(6, 90_000),
			"../../../../etc/evil":        []byte("evil"),
			"deep/tiny-Q4_0.gguf":         noise(7, 50_000),
			"special_tokens_map.json.bak": []byte("old"),
		}}
	h.hub = httptest.NewServer(http.HandlerFunc(h.serveHub))
	t.Cleanup(h.hub.Close)
	h.store = httptest.NewServer(http.HandlerFunc(h.serveStore))
	t.Cleanup(h.store.Close)
	return h
}

// noise is the same bytes for the same seed.
func noise(seed byte, n int) []byte {
	data := make([]byte, 0, n+sha256.Size)
	sum := sha256.Sum256([]byte{seed})
	for len(data) < n {
		data = append(data, sum[:]...)
		sum = sha256.Sum256(sum[:])
	}
	return data[:n]
}

// large says which files the hub keeps elsewhere.
func large(name string) bool {
	switch filepath.Ext(name) {
	case ".safetensors", ".gguf", ".bin", ".pth":
		return true
	}
	return false
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func gitNameOf(data []byte) string {
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data))
	return hex.EncodeToString(sum[:])
}

func (h *fakeHub) hashOf(name string) string {
	if large(name) {
		return sha256Of(h.files[name])
	}
	return gitNameOf(h.files[name])
}

func (h *fakeHub) note(r *http.Request, elsewhere bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, r.Method+" "+r.URL.Path)
	if elsewhere && (r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "") {
		h.leaked = append(h.leaked, r.URL.String())
	}
}

func (h *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	h.note(r, false)
	if h.broken != nil && h.broken(w, r) {
		return
	}
	if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
		return
	}
	api, isAPI := strings.CutPrefix(r.URL.Path, "/api/models/"+h.model)
	file, isFile := strings.CutPrefix(r.URL.Path, "/"+h.model+"/resolve/")
	switch {
	case isAPI:
		h.serveAPI(w, r, api)
	case isFile:
		h.serveFile(w, r, file)
	default:
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"error\":%q}", message)
}

// serveAPI answers what is below the model: its description at a revision, and its tree, which the
// hub's own client asks for.
func (h *fakeHub) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	kind, revision, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if revision != "" && revision != "main" && revision != "refs/pr/1" && revision != h.commit {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	if kind == "tree" {
		writeJSON(w, h.tree())
		return
	}
	var siblings []map[string]any
	for _, name := range slices.Sorted(maps.Keys(h.files)) {
		s := map[string]any{"rfilename": name}
		if r.URL.Query().Get("blobs") != "" && !h.bare {
			s["size"], s["blobId"] = len(h.files[name]), gitNameOf(h.files[name])
			if large(name) {
				s["lfs"] = map[string]any{"sha256": sha256Of(h.files[name]),
					"size": len(h.files[name]), "pointerSize": 134}
			}
		}
		siblings = append(siblings, s)
	}
	writeJSON(w, map[string]any{"id": h.model, "modelId": h.model, "sha": h.commit,
		"private": false, "gated": false, "disabled": false, "siblings": siblings})
}

func (h *fakeHub) tree() []map[string]any {
	var entries []map[string]any
	for _, name := range slices.Sorted(maps.Keys(h.files)) {
		if strings.HasPrefix(name, "..") {
			continue
		}
		e := map[string]any{"type": "file", "path": name, "size": len(h.files[name]),
			"oid": gitNameOf(h.files[name])}
		if large(name) {
			e["lfs"] = map[string]any{"oid": sha256Of(h.files[name]), "size": len(h.files[name]),
				"pointerSize": 134}
		}
		entries = append(entries, e)
	}
	return entries
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// serveFile answers REV/FILE.
func (h *fakeHub) serveFile(w http.ResponseWriter, r *http.Request, path string) {
	w.Header().Set("X-Repo-Commit", h.commit)
	revision, name, _ := strings.Cut(path, "/")
	data, ok := h.files[name]
	if revision != h.commit && revision != "main" {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	if !ok {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	if !large(name) {
		w.Header().Set("ETag", `"`+gitNameOf(data)+`"`)
		h.serveBytes(w, r, data)
		return
	}
	w.Header().Set("ETag", `"`+gitNameOf(data)+`"`)
	w.Header().Set("X-Linked-Etag", `"`+sha256Of(data)+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
	w.Header().Set("Location", h.store.URL+"/"+sha256Of(data)+"?X-Amz-Signature=secret")
	w.WriteHeader(http.StatusFound)
}

// serveStore answers /SHA256 to whoever has the signature.
func (h *fakeHub) serveStore(w http.ResponseWriter, r *http.Request) {
	h.note(r, true)
	if h.broken != nil && h.broken(w, r) {
		return
	}
	if r.URL.Query().Get("X-Amz-Signature") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	for name, data := range h.files {
		if large(name) && "/"+sha256Of(data) == r.URL.Path {
			h.serveBytes(w, r, data)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
}

func (h *fakeHub) serveBytes(w http.ResponseWriter, r *http.Request, data []byte) {
	counted := &counter{w, h, r.URL.Path}
	http.ServeContent(counted, r, "", time.Time{}, bytes.NewReader(data))
}

// counter counts bytes before they are sent, so that whoever has received them finds them counted.
type counter struct {
	http.ResponseWriter
	hub  *fakeHub
	path string
}

func (c *counter) Write(b []byte) (int, error) {
	c.hub.mu.Lock()
	c.hub.served[c.path] += len(b)
	c.hub.mu.Unlock()
	return c.ResponseWriter.Write(b)
}

// bytesOf says how many bytes went out under a path.
func (h *fakeHub) bytesOf(path string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served[path]
}

// count says how many requests there were that begin so.
func (h *fakeHub) count(prefix string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, r := range h.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// client fetches from the fake into a cache; its waits take no time and are noted.
func (h *fakeHub) client(t testing.TB, cache string) *Client {
	c := New(Options{UserAgent: "test", Settings: Settings{Endpoint: h.hub.URL, Cache: cache}})
	if h.token != "" {
		c.settings.Token, c.settings.TokenFrom = h.token, "HF_TOKEN"
	}
	c.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// heard is a Watch that remembers.
type heard struct {
	mu      sync.Mutex
	planned []File
	present int
	bytes   map[string]int64
	done    []string
	said    []string
}

func (h *heard) Plan(fetch []File, present int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.planned, h.present, h.bytes = fetch, present, map[string]int64{}
}

func (h *heard) Got(i int, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes[h.planned[i].Name] = bytes
}

func (h *heard) Done(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, h.planned[i].Name)
}

func (h *heard) Say(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, text)
}

// tinyRef is the model of the fake.
var tinyRef = Ref{Org: "acme", Name: "tiny"}

// pullTiny fetches the fake's model and wants it to work.
func pullTiny(t *testing.T, c *Client) (Snapshot, *heard) {
	t.Helper()
	w := &heard{}
	s, err := c.Pull(t.Context(), tinyRef, "", w)
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(w.said, "\n"))
	}
	return s, w
}

// checkWhole wants a snapshot that an engine can load, byte for byte, and nothing unfinished.
func (h *fakeHub) checkWhole(t *testing.T, cache string, s Snapshot) {
	t.Helper()
	if len(s.Missing) > 0 {
		t.Errorf("missing: %v", s.Missing)
	}
	for name, path := range filesBelow(t, s.Path) {
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, h.files[name]) {
			t.Errorf("%s differs: %v", name, err)
		}
	}
	for name := range filesBelow(t, cache) {
		if strings.Contains(name, incomplete) || strings.Contains(name, ".tmp") {
			t.Errorf("%s was left behind", name)
		}
	}
	if h.leaked != nil {
		t.Errorf("the token went to %v", h.leaked)
	}
}

// filesBelow maps the names of all that is no folder to their paths.
func filesBelow(t *testing.T, folder string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(folder, path)
			found[filepath.ToSlash(name)] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// hijack takes the connection away from the server, to end it wherever the test wants.
func hijack(w http.ResponseWriter) io.Closer {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}
