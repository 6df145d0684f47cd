package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/model/embedded"
)

// copyModel writes the embedded model as a folder.
func copyModel(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(folder, embedded.FS()); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestConfigCheckLooksAtTheWeights spoils the weights of a folder in the usual ways.
func TestConfigCheckLooksAtTheWeights(t *testing.T) {
	folder := copyModel(t)
	weights := filepath.Join(folder, "model.safetensors")
	whole, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "engine.toml")
	text := "version = 1\n[model]\npath = " + quoted(folder) + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, "", "config", "check", "-c", file); got.code != 0 {
		t.Fatalf("a whole folder: %+v", got)
	}
	for name, content := range map[string][]byte{
		"cut": whole[:len(whole)/2], "empty": {}, "a pointer": []byte("version https://git-lfs\n"),
	} {
		if err := os.WriteFile(weights, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got := invoke(t, "", "config", "check", "-c", file)
		if got.code != exitConfig || !strings.Contains(got.err, "model.safetensors") {
			t.Errorf("%s: exit %d\n%s", name, got.code, got.err)
		}
	}
	if err := os.Remove(weights); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, "", "config", "check", "-c", file); got.code != exitConfig {
		t.Errorf("no weights: %+v", got)
	}
}

func quoted(s string) string { return "\"" + filepath.ToSlash(s) + "\"" }

func TestFilesThatAreNoModelOrModule(t *testing.T) {
	folder := t.TempDir()
	gguf, wasm := filepath.Join(folder, "m.gguf"), filepath.Join(folder, "m.wasm")
	for _, name := range []string{gguf, wasm} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := invoke(t, "", "run", "--model", gguf, "x"); !strings.Contains(got.err, "GGUF") {
		t.Errorf("a file as a model: %s", got.err)
	}
	got := invoke(t, "", "policy", "load", wasm, "--admin", "unix:"+filepath.Join(folder, "no"))
	if !strings.Contains(got.err, "is empty") {
		t.Errorf("an empty module: %s", got.err)
	}
}

// fullDisk takes so many bytes.
type fullDisk int

func (f *fullDisk) Write(p []byte) (int, error) {
	if *f -= fullDisk(len(p)); *f < 0 {
		return 0, errors.New("no space left")
	}
	return len(p), nil
}

func TestTextThatIsLostIsAnError(t *testing.T) {
	disk := fullDisk(10)
	var words strings.Builder
	code := execute(t.Context(), []string{"run", "--max-tokens", "20", "In the beginning"},
		streams{strings.NewReader(""), &disk, &words})
	if code != exitFailed || !strings.Contains(words.String(), "no space left") {
		t.Errorf("exit %d: %s", code, words.String())
	}
}

func TestADemonstrationOverwritesNobodysFiles(t *testing.T) {
	folder := shortDir(t)
	nodes := []*demoNode{
		{name: "p0", role: config.RolePrefill, address: "127.0.0.1:1"},
		{name: "d0", role: config.RoleDecode, address: "127.0.0.1:2"},
		{name: "r0", role: config.RoleRouter, address: "127.0.0.1:3"},
	}
	for range 2 { // Its own, it may.
		if err := writeDemo(folder, "", nodes); err != nil {
			t.Fatal(err)
		}
	}
	mine := filepath.Join(folder, "decode.toml")
	if err := os.WriteFile(mine, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := writeDemo(folder, "", nodes)
	text, _ := fs.ReadFile(os.DirFS(folder), "decode.toml")
	if err == nil || string(text) != "version = 1\n" {
		t.Errorf("error %v, the file now says %q", err, text)
	}
	running, err := net.Listen("unix", filepath.Join(folder, "r0.sock"))
	if err != nil {
		t.Skip("no unix sockets here: ", err)
	}
	defer running.Close()
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	err = writeDemo(folder, "", nodes)
	if _, there := os.Stat(mine); err == nil || !strings.Contains(err.Error(), "runs in") ||
		there == nil {
		t.Errorf("error %v, %v", err, there)
	}
}

// TestAPoolBeyondTheMachine asks for more pages than any machine has.
func TestAPoolBeyondTheMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.toml")
	text := "version = 1\n[kv_cache]\nmemory = \"4000TiB\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "", "config", "check", "-c", file)
	if got.code != exitConfig || !strings.Contains(got.err, "engine.toml:3:10") {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}
