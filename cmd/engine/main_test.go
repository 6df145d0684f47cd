package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/plugins/builtin"
)

// result is what a command line did.
type result struct {
	code     int
	out, err string
}

// invoke runs one command line in this process.
func invoke(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := execute(t.Context(), args, streams{strings.NewReader(stdin), &out, &err})
	return result{code, out.String(), err.String()}
}

func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"polcy":                           `engine has no command "polcy"; did you mean "policy"?`,
		"policy lst":                      `engine policy has no command "lst"; did you mean`,
		"run --foo":                       "unknown flag: --foo; see `engine run --help`",
		"run a b":                         "put quotes around a text with spaces",
		"run --max-tokens 0 x":            "--max-tokens 0: at least 1",
		"run --token-ids 1,x":             `--token-ids: "x" is not a token id`,
		"run --token-ids 1 x":             "--token-ids and a prompt exclude each other",
		"serve --model x":                 "--model and --out go with --demo-pd",
		"serve --demo-pd -c x":            "--demo-pd writes its own files",
		"version x":                       `engine version takes no argument, got "x"`,
		"policy check":                    "engine policy check needs FILE",
		"policy check --config {x mine":   "no such file",
		"tokenize --model x":              "tokenize needs --json-lines",
		"config check":                    "config check needs -c FILE",
		"config init --role x":            "one of all, prefill, decode, router",
		"help nope":                       `there is no help for "nope"`,
		"policy check builtin:fcfs a":     "takes one argument",
		"policy load":                     "engine policy load needs FILE|NAME",
		"policy check builtin:nosuch":     `no built-in policy "nosuch"; there are: `,
		"tokenize --model x --json-lines": "there is no folder x",
	} {
		got := invoke(t, "", strings.Fields(line)...)
		code := exitUsage
		if strings.Contains(line, "check --config") || strings.Contains(line, "nosuch") ||
			strings.Contains(line, "--json-lines") {
			code = exitFailed
		}
		if got.code != code || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("engine %s: exit %d\n%s%swant %q", line, got.code, got.out, got.err, want)
		}
	}
}

// TestHelpPages reads every page: it fits 100 columns, says its exit codes, and shows an example
// where there is something to show.
func TestHelpPages(t *testing.T) {
	each(rootCommand(), func(cmd *cobra.Command) {
		if cmd.Hidden {
			return // Engines call it, people do not.
		}
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		got := invoke(t, "", args...)
		if got.code != 0 || got.err != "" {
			t.Errorf("%v: exit %d, %s", args, got.code, got.err)
		}
		want := []string{"Usage:\n  engine", "Flags:"}
		if !cmd.HasSubCommands() && cmd.Name() != "help" {
			want = append(want, "Exit codes:\n  0   ok")
		}
		if cmd.Name() != "help" && cmd.Name() != "version" {
			want = append(want, "Examples:\n  ")
		}
		for _, w := range want {
			if cmd.Name() != "help" && !strings.Contains(got.out, w) {
				t.Errorf("%v lacks %q:\n%s", args, w, got.out)
			}
		}
		for line := range strings.Lines(got.out) {
			if len([]rune(line)) > 101 {
				t.Errorf("%v: line of %d columns: %s", args, len(line), line)
			}
		}
	})
}

func TestReportMapsErrorsToExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{reported, exitFailed, ""},
		{errors.New("x"), exitFailed, "error: x\n"},
		{fmt.Errorf("outer: %w", usageError("x")), exitUsage, "error: outer: x\n"},
		{unreachable(errors.New("x")), exitUnreachable, "error: x\n"},
		{fmt.Errorf("listen: %w", syscall.EADDRINUSE), exitTemporary, "error: listen: "},
		{badConfig{{Code: "E000", Message: "x", File: "f"}}, exitConfig, "error[E000]: x\n"},
	} {
		var w bytes.Buffer
		if code := report(&w, c.err); code != c.code || !strings.HasPrefix(w.String(), c.says) {
			t.Errorf("%v: exit %d, %q", c.err, code, w.String())
		}
	}
}

func TestVersion(t *testing.T) {
	var b build
	got := invoke(t, "", "version", "--json")
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || b.PolicyABI != "1.0" ||
		!slices.Equal(b.Backends, []string{"cpu"}) {
		t.Errorf("%v %v", got, err)
	}
	if got := invoke(t, "", "version"); !strings.HasPrefix(got.out, "engine "+release+" (") {
		t.Error(got)
	}
}

func TestBuiltinPoliciesAreWhatTheConfigurationOffers(t *testing.T) {
	var names []string
	for _, name := range builtin.Names() {
		names = append(names, "builtin:"+name)
	}
	if !slices.Equal(names, config.Builtins()) {
		t.Errorf("shipped %v, offered %v", names, config.Builtins())
	}
}

func TestConfigInitCheckShow(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	for _, role := range []string{"", "all", "prefill", "decode", "router"} {
		name := "f" + role + ".toml"
		args := []string{"config", "init", name}
		if role != "" {
			args = append(args, "--role", role)
		}
		got := invoke(t, "", args...)
		if got.code != 0 || !strings.Contains(got.err, "wrote "+name) {
			t.Fatal(got)
		}
		got = invoke(t, "", "config", "check", "-c", name)
		if got.code != 0 || !strings.Contains(got.out, "✓ "+name+" is valid") {
			t.Errorf("%s: %v", name, got)
		}
		got = invoke(t, "", "config", "show", "-c", name)
		changed := role != "" && role != "all"
		if got.code != 0 || strings.Contains(got.out, "# default") != changed {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := invoke(t, "", "config", "init", "f.toml"); got.code != exitFailed ||
		!strings.Contains(got.err, "f.toml exists") {
		t.Error(got)
	}
	if got := invoke(t, "", "config", "check", "-c", "none.toml"); got.code != exitConfig ||
		!strings.Contains(got.err, "`engine config init none.toml` writes one") {
		t.Error(got)
	}
}

// TestConfigCheckFollowsTheFile reports what is wrong with what the file names, at its place.
func TestConfigCheckFollowsTheFile(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("bad.wasm", "not a module")
	write("engine.toml", `[model]
path = "."
[policies.none]
path = "none.wasm"
[policies.pinned]
path = "bad.wasm"
sha256 = "`+strings.Repeat("0", 64)+`"
[policies.bad]
path = "bad.wasm"
`)
	t.Chdir(folder)
	got := invoke(t, "", "config", "check", "-c", "engine.toml")
	if got.code != exitConfig {
		t.Error(got)
	}
	for _, want := range []string{
		"error[E411]: model.path is not a model's folder\n --> engine.toml:2:8",
		"no config.json in it",
		"error[E401]: policy \"none\" cannot be read\n --> engine.toml:4:8",
		"error[E402]: policy \"pinned\" is not the module that is pinned\n --> engine.toml:7:10",
		"error[E403]: policy \"bad\" is refused\n --> engine.toml:9:8",
		"4 problems in engine.toml",
	} {
		if !strings.Contains(got.err, want) {
			t.Errorf("%s\nlacks %q", got.err, want)
		}
	}
}
