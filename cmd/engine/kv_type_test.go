package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/config"
)

// TestQ8NeedsWholeBlocks: a model whose heads are no whole blocks of q8_0 is refused by the check
// and at the start, with the setting named.
func TestQ8NeedsWholeBlocks(t *testing.T) {
	model := filepath.Join(sharedDir(t), "data", "models", "stories260k", "hf-f32")
	file := filepath.Join(t.TempDir(), "engine.toml")
	text := fmt.Sprintf("[model]\npath = %q\n[kv_cache]\ndtype = \"q8_0\"\n", model)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, found := config.Load(file)
	if config.Failed(found) {
		t.Fatal(found)
	}
	_, problems := checkModel(cfg)
	if len(problems) != 1 || problems[0].Code != "E418" ||
		!strings.Contains(problems[0].Label, "blocks of 32") {
		t.Errorf("the check says %+v", problems)
	}
	_, err := loadModel(cfg, quietLoading())
	if err == nil || !strings.Contains(err.Error(), `kv_cache.dtype = "q8_0"`) {
		t.Errorf("the start says %v", err)
	}
}
