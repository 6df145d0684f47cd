package layout_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of scenarios into CONTRIBUTING.md")

// lastScenario is how many scenarios the specification of the micro-serving calls numbers.
const lastScenario = 81

// marks begin and end the table in CONTRIBUTING.md.
const (
	tableBegins = "<!-- scenarios: go test . -run TestScenarios -update -->\n"
	tableEnds   = "<!-- end of scenarios -->\n"
)

var (
	// testNames are functions TestScenario19And22OnTheWire, subtests named "49 and 50, windows" and
	// titles "== 22 23 a prompt of 300" of scripts.
	testNames   = regexp.MustCompile(`(?m)^func TestScenario(\d+(?:And\d+)*)`)
	subtests    = regexp.MustCompile(`\{"(\d+(?:(?:, | and )\d+)*), [a-z]`)
	scriptNames = regexp.MustCompile(`(?m)^== (\d+[a-z]?(?: \d+[a-z]?)*) `)
	number      = regexp.MustCompile(`\d+`)
)

// TestScenarios: every scenario has a test that bears its number, and CONTRIBUTING.md says where.
func TestScenarios(t *testing.T) {
	places := map[int][]string{}
	note := func(file string, pattern *regexp.Regexp, text []byte) {
		for _, found := range pattern.FindAllSubmatch(text, -1) {
			for _, digits := range number.FindAll(found[1], -1) {
				n, err := strconv.Atoi(string(digits))
				if err == nil && !slices.Contains(places[n], file) {
					places[n] = append(places[n], file)
				}
			}
		}
	}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		file := filepath.ToSlash(name)
		script := strings.HasPrefix(file, "host/scheduler/testdata/") && path.Ext(file) == ".txt"
		if err != nil || entry.IsDir() || !script && !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if script {
			note(file, scriptNames, text)
			return err
		}
		note(file, testNames, text)
		if path.Dir(file) == "cmd/engine" {
			note(file, subtests, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= lastScenario; n++ {
		if len(places[n]) == 0 {
			t.Errorf("no test is named after scenario %d", n)
		}
	}
	compareTable(t, places)
}

// compareTable wants the table of CONTRIBUTING.md to be true, though it need not name every test;
// or it writes it.
func compareTable(t *testing.T, places map[int][]string) {
	t.Helper()
	const file = "CONTRIBUTING.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	have, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", file, tableBegins, tableEnds)
	}
	if *update {
		text := before + tableBegins + scenarioTable(places) + tableEnds + after
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	rows, next := regexp.MustCompile(`(?m)^\| (\d+)(?:–(\d+))? \| (.*) \|$`), 1
	for _, row := range rows.FindAllStringSubmatch(have, -1) {
		first, _ := strconv.Atoi(row[1])
		last := first
		if row[2] != "" {
			last, _ = strconv.Atoi(row[2])
		}
		for n := first; n <= last; n++ {
			for _, place := range strings.Split(row[3], ", ") {
				if !slices.Contains(places[n], strings.Trim(place, "`")) {
					t.Errorf("%s: scenario %d is not in %s; write the table anew:\n"+
						"  go test . -run TestScenarios -update", file, n, place)
				}
			}
		}
		if first != next {
			t.Errorf("%s: the table goes from scenario %d to %d", file, next-1, first)
		}
		next = last + 1
	}
	if next != lastScenario+1 {
		t.Errorf("%s: the table ends with scenario %d of %d", file, next-1, lastScenario)
	}
}

// scenarioTable has a row for each run of scenarios that are tested in the same files.
func scenarioTable(places map[int][]string) string {
	var b strings.Builder
	b.WriteString("| scenario | tests |\n|---|---|\n")
	for n := 1; n <= lastScenario; {
		last := n
		for last < lastScenario && slices.Equal(places[last+1], places[n]) {
			last++
		}
		numbers := strconv.Itoa(n)
		if last > n {
			numbers += "–" + strconv.Itoa(last)
		}
		fmt.Fprintf(&b, "| %s | `%s` |\n", numbers, strings.Join(places[n], "`, `"))
		n = last + 1
	}
	return b.String()
}
