package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func mustField(r *row) reflect.Value {
	v, _ := r.field(Default())
	return v
}

// TestReports runs testdata/reports.txt: each case is "==== title", a file, "----", and the report.
// Rewrite the reports with UPDATE=1 and read the difference.
func TestReports(t *testing.T) {
	const path = "testdata/reports.txt"
	var out strings.Builder
	for i, part := range strings.Split(readFile(t, path), "==== ")[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		text, want, ok := strings.Cut(rest, "----\n")
		if !ok {
			t.Fatalf("case %d (%s) has no ----", i, title)
		}
		_, problems := parse("engine.toml", text)
		var got bytes.Buffer
		Report(&got, problems)
		if got.String() != want {
			t.Errorf("%s\n%s\nwant\n%s", title, got.String(), want)
		}
		fmt.Fprintf(&out, "==== %s\n%s----\n%s", title, text, got.String())
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnreadableFile(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large.toml")
	if err := os.WriteFile(large, bytes.Repeat([]byte("#"), maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(folder, "none.toml"): "no such file",
		folder:                             "it is a folder",
		large:                              "it is larger than 1MiB",
	} {
		c, problems := Load(path)
		if c != nil || len(problems) != 1 || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: %v", path, problems)
		}
	}
}

func TestHostileFiles(t *testing.T) {
	for _, text := range []string{
		"a = " + strings.Repeat("[", 100000),
		"a = " + strings.Repeat("{a=", 100000),
		strings.Repeat("a.", 100000) + "a = 1",
		"[" + strings.Repeat("a.", 100000) + "a]",
		strings.Repeat("x", 100000) + " = 1",
		"a = \"" + strings.Repeat("\x1b[31m", 1000),
		strings.Repeat("x", 300) + " = \x00",
		strings.Repeat("k1 = 1\n", 10),
	} {
		c, problems := parse("engine.toml", text)
		var out bytes.Buffer
		Report(&out, problems)
		if c != nil || out.Len() > 120000 || strings.ContainsAny(out.String(), "\x1b\x00") {
			t.Errorf("%.20q: %d bytes of report", text, out.Len())
		}
	}
	var many strings.Builder
	for i := range 1000 {
		many.WriteString(fmt.Sprintf("key%d = 1\n", i))
	}
	_, problems := parse("engine.toml", many.String())
	var out bytes.Buffer
	Report(&out, problems)
	if !strings.HasSuffix(out.String(), "… and 950 more\n1000 problems in engine.toml\n") {
		t.Error(out.String()[max(0, out.Len()-200):])
	}
}

// TestPlaces compares what the scan found with what the library decoded: the text at the place of
// each value decodes to that value.
func TestPlaces(t *testing.T) {
	for _, text := range []string{full, Example(""), readFile(t, "testdata/sample.toml"),
		strings.ReplaceAll(full, "\n", "\r\n"),
		"a . \"b\\u0063\" . 'd.e' = 1\n[\"x y\".z]\nq=[[1,[2]],{r=3,'s'=\"\"\"]\"]\n\"\"\"}]\n",
		"t = 1979-05-27 07:32:00 # c\nu = \"\"\"\"a\"\"\"\"\"\nv = ''''b''''\nw = '\\'\n",
		"x = {\n a = 1, # c\n b = [ { c = 2 } ]\n}\n[[l]]\nk=1\n[[l]]\nk=2\n[l.m]\nn=3\n",
	} {
		checkPlaces(t, text)
	}
}

func checkPlaces(t *testing.T, text string) {
	t.Helper()
	f := newFile("engine.toml", text)
	values, problem := f.decode()
	if problem != nil {
		t.Fatalf("%q: %v", text, problem)
	}
	comparePlaces(t, f, values, f.root)
}

func comparePlaces(t *testing.T, f *file, value any, n *node) {
	t.Helper()
	if n == nil {
		t.Errorf("no place for %v in %q", value, f.text)
		return
	}
	if n.set {
		again, err := decodeValue(f.text[n.value.start:n.value.end])
		if err != nil || fmt.Sprint(again) != fmt.Sprint(value) {
			t.Errorf("%v stands at %q: %v", value, f.text[n.value.start:n.value.end], err)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			comparePlaces(t, f, v, n.kids[key])
		}
	case []map[string]any:
		for i, v := range value {
			comparePlaces(t, f, v, n.element(i))
		}
	case []any:
		for i, v := range value {
			comparePlaces(t, f, v, n.element(i))
		}
	}
}

// FuzzLoad feeds any text: it ends, never panics, reports places inside the file, and where the
// library accepts the text the scan has found every value.
func FuzzLoad(f *testing.F) {
	f.Add(full)
	f.Add(Example(""))
	f.Add("[a]\n[a]\n")
	f.Add("role: all")
	f.Fuzz(func(t *testing.T, text string) {
		c, problems := parse("engine.toml", text)
		if (c == nil) != Failed(problems) {
			t.Fatal("a Config comes exactly without an error")
		}
		var out bytes.Buffer
		Report(&out, problems)
		source := newFile("engine.toml", text)
		for _, p := range problems {
			if p.Line < 0 || p.Line > len(source.starts) || p.Line > 0 && p.Column < 1 {
				t.Fatalf("place %d:%d of %d lines", p.Line, p.Column, len(source.starts))
			}
		}
		if values, problem := source.decode(); problem == nil {
			comparePlaces(t, source, values, source.root)
		}
		if c != nil {
			var show strings.Builder
			Show(&show, c, nil)
			if again, problems := parse("engine.toml", show.String()); again == nil {
				t.Fatalf("show of a valid file is not valid: %v", problems)
			}
		}
	})
}

// TestAFractionIsSuggestedOnlyWhereItFits asks for two, which as a percentage is below the least.
func TestAFractionIsSuggestedOnlyWhereItFits(t *testing.T) {
	for value, want := range map[string]bool{"2": false, "90": true, "400": false} {
		file := filepath.Join(t.TempDir(), "engine.toml")
		text := "version = 1\n[kv_cache]\nmemory_fraction = " + value + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := Load(file)
		if len(problems) != 1 || strings.Contains(problems[0].Label, "% write") != want {
			t.Errorf("%s: %+v", value, problems)
		}
	}
}
