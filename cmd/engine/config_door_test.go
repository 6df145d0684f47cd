package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCheckPointsAtWhatCannotServe compares the whole report of mistakes that only what the file
// points to can show. Numbers that hang on the machine are replaced.
func TestCheckPointsAtWhatCannotServe(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad.jinja", "{% for m in messages %}\n{{ m.content }\n{% endfor %}\n")
	write("cert.pem", "nonsense")
	write("keys.toml", keyTable("a", "sk", "models = [\"x\"]"))
	var got strings.Builder
	for _, c := range []struct{ title, text string }{
		{"a pool for less than one request", "[kv_cache]\nmemory = \"256KiB\"\n"},
		{"a template that is none", "[model]\nchat_template = \"bad.jinja\"\n"},
		{"a certificate that is none",
			"[api.tls]\ncert_file = \"cert.pem\"\nkey_file = \"key.pem\"\n"},
		{"folders that are files", "[node]\nstate_dir = \"cert.pem\"\n" +
			"cache_dir = \"keys.toml\"\n"},
		{"all is well", "[node]\nstate_dir = \"new/state\"\ncache_dir = \".\"\n" +
			"[auth]\nmode = \"api_keys\"\nkeys_file = \"keys.toml\"\n" +
			"[listen]\napi = \"0.0.0.0:1\"\n"},
	} {
		write("engine.toml", c.text)
		r := invoke(t, "", "config", "check", "-c", "engine.toml")
		report := r.err
		if r.code == 0 {
			report = regexp.MustCompile(`(?m)^✓ (access|certificate).*\n`).FindString(r.out)
		}
		got.WriteString("==== " + c.title + "\n" + report)
	}
	golden := filepath.Join(packageFolder, "testdata", "check.txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readText(t, golden); got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

// packageFolder is where the tests were started.
var packageFolder = func() string {
	folder, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return folder
}()

// TestShowEffective: the variable wins over the file, and each line says so.
func TestShowEffective(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("ENGINE__KV_CACHE__MEMORY", "4GiB")
	text := "[kv_cache]\nmemory = \"1GiB\"\npage_size = 32\n"
	if err := os.WriteFile("engine.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := invoke(t, "", "config", "show", "-c", "engine.toml", "--effective")
	for _, want := range []string{`"4GiB" +# env ENGINE__KV_CACHE__MEMORY`,
		`= 32 +# engine.toml:3`, `max_queue +=.*# default`, `threads +=.*"auto" +# default, = \d`} {
		if !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("no %s in\n%s", want, r.out)
		}
	}
	t.Setenv("ENGINE__KV_CACHE__MEMROY", "4GiB")
	r = invoke(t, "", "config", "check", "-c", "engine.toml")
	if r.code != exitConfig || !strings.Contains(r.err, "error[E140]") ||
		!strings.Contains(r.err, `did you mean "ENGINE__KV_CACHE__MEMORY"?`) {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
	if r = invoke(t, "", "run", "x"); r.code != exitConfig {
		t.Errorf("a command without a file takes the variable: exit %d", r.code)
	}
}
