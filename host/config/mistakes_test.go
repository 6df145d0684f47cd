package config

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// edits are the fifteen likeliest mistakes, each made in testdata/sample.toml. An edit replaces the
// text of a line (counted from 1), or adds a line after it.
var edits = []struct {
	replace map[int]string
	after   map[int]string
}{
	{replace: map[int]string{20: `max_num_seq = 64`}},
	{replace: map[int]string{19: `[schedular]`}},
	{after: map[int]string{32: `threads = 4`}},
	{replace: map[int]string{16: `page_size       = "16"`}},
	{replace: map[int]string{28: `timeout = 4`}},
	{replace: map[int]string{22: `hard_age     = "20 seconds"`}},
	{replace: map[int]string{4: `role = "prefiller"`}},
	{replace: map[int]string{15: `memory_fraction = 90`}},
	{replace: map[int]string{17: `prefix_cache    = True`}},
	{after: map[int]string{32: "[scheduler]\nmax_queue = 1"}},
	{after: map[int]string{32: "[router.prefill]\nname = \"p0\""}},
	{replace: map[int]string{16: `block_size      = 16`}},
	{replace: map[int]string{25: `active = "sjf"`}},
	{after: map[int]string{8: `admin    = "0.0.0.0:2019"`}},
	{replace: map[int]string{4: `role = "router"`, 16: `page_size       = 24`}},
}

// TestMistakes compares each report with testdata/mistakes.txt, whose lines of hyphens name the
// edit.
func TestMistakes(t *testing.T) {
	want := splitMistakes(t)
	sample := strings.Split(readFile(t, "testdata/sample.toml"), "\n")
	if len(want) != len(edits) {
		t.Fatalf("%d mistakes in the file, %d edits here", len(want), len(edits))
	}
	for i, edit := range edits {
		var lines []string
		for at, line := range sample {
			if with, ok := edit.replace[at+1]; ok {
				line = with
			}
			lines = append(lines, line)
			if extra, ok := edit.after[at+1]; ok {
				lines = append(lines, extra)
			}
		}
		c, problems := parse("engine.toml", strings.Join(lines, "\n"))
		if c != nil {
			t.Errorf("mistake %d: accepted", i+1)
		}
		var got bytes.Buffer
		Report(&got, problems)
		if got.String() != want[i] {
			t.Errorf("mistake %d:\n%s\nwant\n%s", i+1, got.String(), want[i])
		}
	}
}

func TestSampleIsValid(t *testing.T) {
	c, problems := Load("testdata/sample.toml")
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if changes := Diff(Default(), c); changes != nil {
		peers := changes[0]
		if len(changes) != 1 || peers.Key != "transfer.peers" {
			t.Errorf("the sample changes %v", changes)
		}
	}
	if c.Lines() != 32 || c.KeysSet() != 16 {
		t.Errorf("%d lines, %d keys", c.Lines(), c.KeysSet())
	}
}

func splitMistakes(t *testing.T) []string {
	t.Helper()
	var sections []string
	for line := range strings.Lines(readFile(t, "testdata/mistakes.txt")) {
		if strings.HasPrefix(line, "---- ") {
			sections = append(sections, "")
		} else {
			sections[len(sections)-1] += line
		}
	}
	return sections
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
