package authortools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/plugins/policyfile"
)

const aboutMine = `
name = "mine"
version = "1.0.0"
lang = "c"
summary = "It is for a test."
source = "policy.c"
[build]
commands = [["cc"]]
[settings.aging]
type = "int"
default = 5
min = 0
max = 100
doc = "How fast."
[settings.strict]
type = "bool"
default = false
doc = "Whether."
`

func TestCheckSettings(t *testing.T) {
	file, err := policyfile.Parse(aboutMine)
	if err != nil {
		t.Fatal(err)
	}
	const unknown = ": the policy has no such setting"
	schema := Schema(file)
	for settings, want := range map[string][]string{
		"":                          nil,
		`{}`:                        nil,
		`{"aging":7,"strict":true}`: nil,
		`{"aging":101}`:             {"aging: maximum: got 101, want 100"},
		`{"aging":"fast"}`:          {"aging: got string, want integer"},
		`{"agin":1,"strict":1}`:     {"agin" + unknown, "strict: got number, want boolean"},
		`[1]`:                       {"got array, want object"},
		`{"aging":1`:                {"the settings are no JSON"},
		`{"aging":-1,"x":{},"z":null}`: {"aging: minimum: got -1, want 0", "x" + unknown,
			"z" + unknown},
	} {
		found, err := CheckSettings(schema, []byte(settings))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range found {
			got = append(got, m.Error())
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", settings, got, want)
		}
	}
	for _, bad := range []string{"", "{", `{"type":"number of some kind"}`,
		`{"$ref":"file:///etc/passwd"}`, `{"$ref":"http://127.0.0.1:9/x.json"}`} {
		if _, err := CheckSettings([]byte(bad), []byte("{}")); err == nil {
			t.Errorf("the schema %q is taken", bad)
		}
	}
}

func TestFindSchema(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(module, file, part string) {
		t.Helper()
		schema, from, err := FindSchema(filepath.Join(dir, module))
		if err != nil || filepath.Base(from) != file && file != from ||
			!strings.Contains(string(schema), part) {
			t.Errorf("%s: %q from %q: %v", module, schema, from, err)
		}
	}
	want("mine.wasm", "", "")
	write("policy.toml", aboutMine)
	want("mine.wasm", "policy.toml", `"aging"`)
	want("other.wasm", "", "")
	write("policy.schema.json", `{"title":"hand-written"}`)
	want("mine.wasm", "policy.schema.json", "hand-written")
	write("other.schema.json", `{"title":"the other's"}`)
	want("other.wasm", "other.schema.json", "the other's")
	write("policy.toml", "name = 3")
	if _, from, err := FindSchema(filepath.Join(dir, "mine.wasm")); err == nil {
		t.Errorf("a policy.toml that cannot be read: from %q", from)
	}
}
