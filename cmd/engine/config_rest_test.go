package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfigCheckSeesMissingFilesBesideAnUnknownKey: all that is wrong shows in one run, each once
// and in the order of the file.
func TestConfigCheckSeesMissingFilesBesideAnUnknownKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "engine.toml")
	text := "[model]\npath = \"not/there\"\n[scheduler]\nmax_num_seq = 3\n" +
		"[policies.mine]\npath = \"gone.wasm\"\n[api.tls]\ncert_file = \"c.pem\"\n" +
		"key_file = \"k.pem\"\n[kv_cache]\npage_size = 24\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	code := execute(t.Context(), []string{"config", "check", "-c", file},
		streams{strings.NewReader(""), &out, &said})
	if code != exitConfig || out.String() != "" {
		t.Errorf("exit code %d: %s", code, &out)
	}
	at := 0
	for _, want := range []string{"model.path", `unknown key "max_num_seq"`, `policy "mine"`,
		"c.pem", "kv_cache.page_size", "5 problems"} {
		i := strings.Index(said.String()[at:], want)
		if i < 0 {
			t.Fatalf("%q does not come next:\n%s", want, &said)
		}
		at += i
	}
}
