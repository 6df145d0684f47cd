package main

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvrelay/engine/host/model/embedded"
)

const hubCommit = "0123456789abcdef0123456789abcdef01234567"

// serveEmbedded is a hub that has the embedded model as acme/embedded, and as acme/slow, of which
// the last byte never comes. The environment points to it and to an empty cache, which is returned.
func serveEmbedded(t *testing.T) (cache string) {
	t.Helper()
	type object = map[string]any
	files := map[string][]byte{}
	var siblings []object
	entries, err := fs.ReadDir(embedded.FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := fs.ReadFile(embedded.FS(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = data
		git := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(data), data))
		s := object{"rfilename": e.Name(), "size": len(data), "blobId": hex.EncodeToString(git[:])}
		if filepath.Ext(e.Name()) == ".safetensors" {
			sum := sha256.Sum256(data)
			s["lfs"] = object{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}
		}
		siblings = append(siblings, s)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, file := strings.CutPrefix(r.URL.Path, "/acme/embedded/resolve/"+hubCommit+"/")
		slow, isSlow := strings.CutPrefix(r.URL.Path, "/acme/slow/resolve/"+hubCommit+"/")
		switch {
		case r.URL.Path == "/api/models/acme/embedded/revision/main",
			r.URL.Path == "/api/models/acme/slow/revision/main":
			_ = json.NewEncoder(w).Encode(object{"sha": hubCommit, "siblings": siblings})
		case file:
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(files[name]))
		case isSlow:
			w.Header().Set("Content-Length", fmt.Sprint(len(files[slow])))
			_, _ = w.Write(files[slow][:len(files[slow])-1])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasPrefix(r.URL.Path, "/api/models/acme/busy/"):
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	cache = t.TempDir()
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE",
		"HF_TOKEN_PATH", "HF_HOME", "TRANSFORMERS_OFFLINE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HUB_CACHE", cache)
	return cache
}

// TestPulledModelIsUsedByItsName fetches the embedded model from a hub and does with it, by its
// name, what can be done with a model.
func TestPulledModelIsUsedByItsName(t *testing.T) {
	cache := serveEmbedded(t)
	t.Chdir(t.TempDir())
	path := filepath.Join(cache, "models--acme--embedded", "snapshots", hubCommit)
	for line, want := range map[string]string{
		"run --model acme/embedded hi":                "the model acme/embedded is not on this",
		"tokenize --model acme/embedded --json-lines": "  engine pull acme/embedded\n",
		"serve --demo-pd --model acme/embedded":       "  engine pull acme/embedded\n",
		"run --model a/b/c hi":                        "there is no folder a/b/c\n",
		"pull acme/none":                              "there is no such model",
		"pull nonsense":                               `"nonsense" is not the name of a model`,
		"pull acme/embedded config.json":              "only a .gguf file is named",
		"pull acme/busy":                              "asks to wait 1h0m0s: try again later",
		"pull a/b c.gguf d":                           "takes a model and at most one file",
	} {
		got := invoke(t, "", strings.Fields(line)...)
		if got.code == 0 || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("engine %s: exit %d\n%s%swant %q", line, got.code, got.out, got.err, want)
		}
		if busy := strings.Contains(line, "busy"); busy != (got.code == exitTemporary) {
			t.Errorf("engine %s: exit %d", line, got.code)
		}
	}
	if got := invoke(t, "", "models"); !strings.Contains(got.out, "no models in "+cache) {
		t.Error(got)
	}
	got := invoke(t, "", "pull", "acme/embedded")
	for _, want := range []string{"acme/embedded 0123456\n  5 files fetched and",
		"\n  " + path + "\n", "next: engine run --model acme/embedded\n"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Fatalf("exit %d\n%s%s\nlacks %q", got.code, got.out, got.err, want)
		}
	}
	if !strings.Contains(got.err, `"percent":100`) || strings.Count(got.err, "\n") > 12 {
		t.Error(got.err)
	}
	got = invoke(t, "", "models", "--json")
	var list []modelLine
	if err := json.Unmarshal([]byte(got.out), &list); err != nil || len(list) != 1 ||
		list[0].Name != "acme/embedded" || list[0].Path != path || list[0].Size < 1000 ||
		!slices.Equal(list[0].Refs, []string{"main"}) || len(list[0].Missing) != 0 {
		t.Errorf("%v %v", got, err)
	}
	if got := invoke(t, "", "models"); !strings.Contains(got.out, "main 0123456") ||
		!strings.Contains(got.out, "  ready  ") {
		t.Error(got)
	}
	useByName(t)
}

// useByName compares what acme/embedded and the embedded model do: it is the same.
func useByName(t *testing.T) {
	t.Helper()
	flags := []string{"run", "--json", "--temperature", "0", "--max-tokens", "4", "In the"}
	want := oneDocument(t, invoke(t, "", flags...).out)
	for _, revision := range []string{"", "@main", "@" + hubCommit} {
		name := "acme/embedded" + revision
		got := invoke(t, "", append(flags, "--model", name)...)
		if got.code != 0 {
			t.Fatal(got)
		}
		if d := oneDocument(t, got.out); !slices.Equal(d.TokenIDs, want.TokenIDs) {
			t.Errorf("%s: tokens %v, want %v", name, d.TokenIDs, want.TokenIDs)
		}
	}
	got := invoke(t, "\"a\"\n", "tokenize", "--json-lines", "--model", "acme/embedded")
	if got != invoke(t, "\"a\"\n", "tokenize", "--json-lines") {
		t.Error(got)
	}
	if err := os.Mkdir("below", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"engine.toml", "below/engine.toml"} {
		text := "[model]\npath = \"acme/embedded\"\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := invoke(t, "", "config", "check", "-c", file)
		if got.code != 0 || !strings.Contains(got.out, "✓ model         acme/embedded, ") {
			t.Error(got)
		}
		text = strings.ReplaceAll(text, "acme/embedded", "acme/none")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got = invoke(t, "", "config", "check", "-c", file)
		if got.code != exitConfig || !strings.Contains(got.err, "error[E411]: model.path names") ||
			!strings.Contains(got.err, "engine pull acme/none") ||
			!strings.Contains(got.err, file+":2:8") {
			t.Error(got)
		}
	}
	// A path that is there wins.
	if err := os.MkdirAll("acme/embedded", 0o755); err != nil {
		t.Fatal(err)
	}
	got = invoke(t, "", "run", "--model", "acme/embedded", "hi")
	if got.code == 0 || !strings.Contains(got.err, "config.json") {
		t.Error(got)
	}
}
