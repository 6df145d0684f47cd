package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// load parses text as engine.toml and fails on any problem, notes too.
func load(t *testing.T, text string) *Config {
	t.Helper()
	c, problems := parse("engine.toml", text)
	if len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	return c
}

func TestEmptyFileHasTheDefaults(t *testing.T) {
	for _, text := range []string{"", "version = 1", "# nothing\r\n", "\ufeff\n"} {
		if changes := Diff(Default(), load(t, text)); changes != nil {
			t.Errorf("%q changes %v", text, changes)
		}
	}
	c := Default()
	if c.Scheduler.TokenBudget != 2048 || c.Scheduler.HardAge != 20*time.Second ||
		c.Policy.Limits.Memory != 16<<20 || c.Transfer.MaxRate != 0 || c.Node.Role != RoleAll ||
		c.Model.MaxModelLen.Set || c.Policy.Limits.InitFuel != 500_000_000 {
		t.Errorf("defaults: %+v", c)
	}
}

// TestExampleIsTheDefaults keeps the example file true: it holds every key once, and loading it
// changes nothing.
func TestExampleIsTheDefaults(t *testing.T) {
	c := load(t, Example(""))
	if changes := Diff(Default(), c); changes != nil {
		t.Errorf("the example changes %v", changes)
	}
	if c.KeysSet() != len(keys)+1 {
		t.Errorf("%d keys in the example, %d in the table and version", c.KeysSet(), len(keys))
	}
	committed, err := os.ReadFile(filepath.Join("..", "..", "engine.example.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != Example("") {
		t.Error("engine.example.toml is not what `engine config init` writes; run it again")
	}
}

func TestRoleFilesAreValid(t *testing.T) {
	for _, role := range []Role{RoleAll, RolePrefill, RoleDecode, RoleRouter} {
		if c := load(t, Example(role)); c.Node.Role != role {
			t.Errorf("the file for %s has role %s", role, c.Node.Role)
		}
	}
}

// TestTable checks what the rest takes for granted of each row.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for i := range keys {
		r := &keys[i]
		if seen[r.name()] || !isTable(r.table) {
			t.Errorf("%s: twice, or in no section", r.name())
		}
		seen[r.name()] = true
		if _, bounded := measure(r.least); bounded {
			measure(r.most)
		}
		k := kindOf(mustField(r).Type())
		number := k != kindText && k != kindList && k != kindSwitch
		if number && r.least == "" && r.key != "seed" && k != kindRate {
			t.Errorf("%s: no bound", r.name())
		}
		if r.format(Default()) != strings.ReplaceAll(r.def, "_", "") && k == kindNumber {
			t.Errorf("%s: default %s is shown as %s", r.name(), r.def, r.format(Default()))
		}
	}
}

// full is a file that sets many keys, in every way TOML has of writing them.
const full = `version = 1
scheduler.max_queue = 7
"transfer".timeout = "1m30s"
router = { retries = 3, prefill = [ { name = "p", url = "http://h:1" } ], decode = [] }

[node] # comment
role = 'all'
name = "n-1"
state_dir = "state"
"cache_dir" = "/var/c # not a comment"

[listen]
admin = "unix:run/a.sock"
api = """127.0.0.1:1"""

[model]
path = '''
m'''
served_names = [
  "a", # one
  'b',
]
max_model_len = 1_000

[model.defaults]
temperature = 0
top_p = 0.25

[kv_cache]
memory = "1.5GiB"

[transfer]
max_rate = "100MiB/s"
[policies.mine]
path = "p.wasm"
sha256 = "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"
config = { aging = "2s", deep = { x = [1, 2.5, true] } }

[policies.a-b]
path = "/q.wasm"
[policy]
active = "mine"
`

func TestFullFile(t *testing.T) {
	c, problems := parse(filepath.Join("conf", "engine.toml"), full)
	if c == nil {
		t.Fatal(problems)
	}
	if len(problems) != 1 || !problems[0].Note() { // Instances without the role router.
		t.Errorf("problems: %v", problems)
	}
	checks := map[string]bool{
		"queue":    c.Scheduler.MaxQueue == 7,
		"timeout":  c.Transfer.Timeout == 90*time.Second,
		"state":    c.Node.StateDir.Value == filepath.Join("conf", "state"),
		"cache":    c.Node.CacheDir.Value == "/var/c # not a comment",
		"admin":    c.Listen.Admin.Value == "unix:"+filepath.Join("conf", "run", "a.sock"),
		"model":    c.Model.Path == filepath.Join("conf", "m"),
		"names":    slices.Equal(c.Model.ServedNames, []string{"a", "b"}),
		"length":   c.Model.MaxModelLen == To(1000),
		"zero":     c.Model.Defaults.Temperature == To(0.0),
		"memory":   c.KVCache.Memory == To[Size](3<<29),
		"rate":     c.Transfer.MaxRate == 100<<20,
		"router":   c.Router.Retries == 3 && len(c.Router.Prefill) == 1,
		"policies": len(c.Policies) == 2 && c.Policies[0].Name == "mine",
		"module":   c.Policies[0].Path == filepath.Join("conf", "p.wasm"),
		"absolute": c.Policies[1].Path == "/q.wasm",
		"digest":   strings.HasPrefix(c.Policies[0].SHA256, "0123456789abcdef"),
		"json":     string(c.Policies[0].Config) == `{"aging":"2s","deep":{"x":[1,2.5,true]}}`,
	}
	for name, ok := range checks {
		if !ok {
			t.Errorf("%s is wrong: %+v", name, c)
		}
	}
	if p := c.At("policies.a-b.path"); p.Line != 40 || p.Column != 8 {
		t.Errorf("place of policies.a-b.path: %+v", p)
	}
	if p := c.At("router.prefill.0.url"); p.Line != 4 || p.Column != 57 || p.Span != 12 {
		t.Errorf("place of the instance's url: %+v", p)
	}
}

// TestMinimalAndShowGiveTheConfigBack reads back what is written.
func TestMinimalAndShowGiveTheConfigBack(t *testing.T) {
	c, _ := parse("/conf/engine.toml", full)
	var show strings.Builder
	Show(&show, c, map[string]string{"backend.threads": "4, the cores of this machine"})
	if !strings.Contains(show.String(), `"auto"`) ||
		!strings.Contains(show.String(), "# = 4, the cores of this machine") {
		t.Error("show does not say what auto became")
	}
	for name, text := range map[string]string{"show": show.String(), "minimal": Minimal(c)} {
		again, problems := parse("/conf/engine.toml", text)
		if again == nil {
			t.Fatalf("%s: %v\n%s", name, problems, text)
		}
		if changes := Diff(c, again); changes != nil {
			t.Errorf("%s changes %v", name, changes)
		}
	}
	if got := Minimal(Default()); got != "version = 1\n" {
		t.Errorf("minimal of the defaults: %q", got)
	}
}

func TestDiff(t *testing.T) {
	before := load(t, "[policies.a]\npath='/a'\n[policies.gone]\npath='/g'\n[api]\nmax_stop=4")
	after := load(t, "[policies.a]\npath='/b'\n[policy]\nactive='a'\n[kv_cache]\npage_size=32")
	want := []Change{
		{"kv_cache.page_size", "16", "32", false},
		{"policy.active", `"builtin:fcfs"`, `"a"`, true},
		{"api.max_stop", "4", "16", false},
		{"policies.a.path", `"/a"`, `"/b"`, true},
		{"policies.gone.path", `"/g"`, "", true},
	}
	if got := Diff(before, after); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestFolders(t *testing.T) {
	for _, name := range []string{
		"RUNTIME_DIRECTORY", "STATE_DIRECTORY", "CACHE_DIRECTORY",
		"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", "/home/u")
	c := load(t, "[node]\nname='x'")
	admin, err := c.AdminAddress()
	if want := "unix:/home/u/.local/state/engine/run/x.sock"; err != nil || admin != want {
		t.Errorf("admin %q %v, want %q", admin, err, want)
	}
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("CACHE_DIRECTORY", "/var/cache/engine:/other")
	admin, _ = c.AdminAddress()
	cache, _ := c.CacheDir()
	if admin != "unix:/run/user/1/engine/x.sock" || cache != "/var/cache/engine" {
		t.Errorf("admin %q, cache %q", admin, cache)
	}
	if name := Default().NodeName(); checkName(name) != "" || !strings.HasSuffix(name, "-all") {
		t.Errorf("node name %q", name)
	}
}
