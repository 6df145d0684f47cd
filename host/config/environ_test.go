package config

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestEnvironmentOverridesTheFile checks each way a value is written, and that the origin of every
// key is told.
func TestEnvironmentOverridesTheFile(t *testing.T) {
	c, problems := parseUnder("engine.toml", "[kv_cache]\nmemory = \"1GiB\"\npage_size = 32\n",
		[]string{
			"ENGINE__KV_CACHE__MEMORY=4GiB", "ENGINE__SCHEDULER__MAX_QUEUE=7",
			"ENGINE__TRANSFER__TIMEOUT=9s", "ENGINE__KV_CACHE__PREFIX_CACHE=false",
			"ENGINE__TRANSFER__PEERS=10.0.0.0/8, db.example",
			"ENGINE__MODEL__SERVED_NAMES=[\"a,b\"]", "ENGINE__MODEL__DEFAULTS__TOP_P=0.5",
			"ENGINE__BACKEND__THREADS=auto", "ENGINE__MODEL__PATH=123", "OTHER=1", "ENGINE_X=1",
		})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if c.KVCache.Memory != To(Size(4<<30)) || c.KVCache.PageSize != 32 ||
		c.Scheduler.MaxQueue != 7 || c.Transfer.Timeout != 9*time.Second ||
		c.KVCache.PrefixCache || c.Model.Defaults.TopP != To(0.5) || c.Backend.Threads.Set ||
		c.Model.Path != "123" || !slices.Equal(c.Model.ServedNames, []string{"a,b"}) ||
		!slices.Equal(c.Transfer.Peers, []string{"10.0.0.0/8", "db.example"}) {
		t.Errorf("%+v", c)
	}
	for key, want := range map[string]string{
		"kv_cache.memory":        "env ENGINE__KV_CACHE__MEMORY",
		"kv_cache.page_size":     "engine.toml:3",
		"kv_cache.dtype":         "default",
		"model.defaults.top_p":   "env ENGINE__MODEL__DEFAULTS__TOP_P",
		"policies.mine.path":     "default",
		"router.prefill.0.url":   "default",
		"scheduler.token_budget": "default",
	} {
		if got := c.Origin(key); got != want {
			t.Errorf("%s comes from %q, want %q", key, got, want)
		}
	}
	var out strings.Builder
	ShowEffective(&out, c, map[string]string{"backend.threads": "2, the cores"})
	for _, want := range []string{
		"memory          = \"4GiB\"               # env ENGINE__KV_CACHE__MEMORY",
		"page_size       = 32                   # engine.toml:3",
		"threads     = \"auto\"                   # env ENGINE__BACKEND__THREADS, = 2, the cores",
		"max_preempt     = 8                    # default",
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if again, problems := parse("engine.toml", out.String()); again == nil ||
		len(Diff(c, again)) > 0 {
		t.Errorf("what is shown is another configuration: %v", problems)
	}
}

// TestEnvironmentWithoutFile: variables override the defaults too, and every check runs.
func TestEnvironmentWithoutFile(t *testing.T) {
	c, problems := LoadUnder("", []string{"ENGINE__API__MAX_N=3"})
	if c == nil || c.API.MaxN != 3 || problems != nil || c.Lines() != 0 || c.File() != "" {
		t.Errorf("%+v %v", c, problems)
	}
	c, problems = LoadUnder("", nil)
	if c == nil || problems != nil || Diff(c, Default()) != nil ||
		c.Origin("api.max_n") != "default" {
		t.Errorf("%+v %v", c, problems)
	}
}

// TestEnvironmentMistakes compares the whole report.
func TestEnvironmentMistakes(t *testing.T) {
	_, problems := parseUnder("engine.toml", "[scheduler]\nmax_quue = 1\n", []string{
		"ENGINE__KV_CACHE__MEMROY=4GiB", "ENGINE__NODE__ROLE=prefiler", "ENGINE__X=1",
		"ENGINE__KV_CACHE__PAGE_SIZE=24", "ENGINE__TRANSFER__TIMEOUT=4",
		"ENGINE__KV_CACHE__PREFIX_CACHE=True", "ENGINE__LISTEN__API=0.0.0.0:80",
	})
	var got bytes.Buffer
	Report(&got, problems)
	const path = "testdata/environment.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readFile(t, path); got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

// TestEveryKeyHasAVariable sets each key to its own default.
func TestEveryKeyHasAVariable(t *testing.T) {
	for i := range keys {
		value := strings.Trim(keys[i].def, `"`)
		c, problems := LoadUnder("", []string{keys[i].variable() + "=" + value})
		if c == nil || Diff(Default(), c) != nil {
			t.Errorf("%s=%s: %v", keys[i].variable(), value, problems)
		}
	}
}

const goodKeys = `
[[key]]
name   = "acme-prod"
hash   = "sha256:2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B"
tenant = "acme"
models = ["a", "b"]
requests_per_minute = 600
concurrent_requests = 0
[[key]]
name = "other"
hash = "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
`

func TestKeyFile(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("keys.toml", goodKeys)
	file := write("engine.toml", "[auth]\nmode = \"api_keys\"\nkeys_file = \"keys.toml\"\n")
	c, problems := LoadUnder(file, nil)
	if len(problems) > 0 || len(c.Keys) != 2 {
		t.Fatal(c, problems)
	}
	k := c.Keys[0]
	if k.Name != "acme-prod" || k.Tenant != "acme" || k.Hash[0] != 0x2b ||
		k.RequestsPerMinute != To(600) || k.ConcurrentRequests != To(0) || k.TokensPerMinute.Set ||
		!slices.Equal(k.Models, []string{"a", "b"}) || !slices.Equal(c.Keys[1].Models,
		[]string{"*"}) {
		t.Errorf("%+v", c.Keys)
	}
	before := c
	write("keys.toml", goodKeys+"models = [\"c\"]\n")
	after, _ := LoadUnder(file, nil)
	want := []Change{{"auth.keys", "2 keys", "2 keys", true}}
	if got := Diff(before, after); !slices.Equal(got, want) {
		t.Errorf("a changed key file gives %v", got)
	}
	write("keys.toml", "# nobody\n")
	if c, problems := LoadUnder(file, nil); c != nil || problems[0].Code != "E311" {
		t.Errorf("an empty key file: %v", problems)
	}
}

// FuzzKeys feeds any text as a key file.
func FuzzKeys(f *testing.F) {
	f.Add(goodKeys)
	f.Add("key = 1")
	f.Add("[[key]]\nmodels = [1]\nhash = 2")
	f.Fuzz(func(t *testing.T, text string) {
		keys, problems := parseKeys("keys.toml", text)
		if len(keys) == 0 && len(problems) == 0 {
			t.Fatal("no keys and no problem")
		}
		if len(keys) > maxKeys {
			t.Fatal("too many keys")
		}
		Report(&bytes.Buffer{}, problems)
	})
}
