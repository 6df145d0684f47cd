package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mistaken are values, as TOML writes them, of which most keys refuse most.
var mistaken = []string{`-1`, `0`, `1`, `24`, `90`, `1.5`, `-2.5`, `0.00001`, `1e30`, `nan`, `inf`,
	`99999999999`, `true`, `"true"`, `"auto"`, `"5"`, `"1.5"`, `"0.5"`, `"20 seconds"`, `"-5s"`,
	`"0s"`, `"9999999h"`, `"4MB/s"`, `"512 mib"`, `"99999 TiB"`, `"3 h"`, `"x"`, `""`, `"AVX2"`,
	`"fp16"`, `"a b"`, `"ftp://x"`, `"10.0.0.1:80"`, `[]`, `["x"]`, `[1]`, `[true, 2]`,
	`["http://x/y"]`, `1979-05-27`, `"yes"`, `16.0`}

var (
	quotedWord = regexp.MustCompile(`"([^"]*)"`)
	wordList   = regexp.MustCompile(`one of: ([^)]*)`)
	bounds     = regexp.MustCompile(`must be (?:between|at least|at most) (\S+)(?: and (\S+))?`)
	percent    = regexp.MustCompile(`% write (\S+)`)
	bareValue  = regexp.MustCompile(`(?:^write|^try|such as|quotes:|\bor|default is) ` +
		`(-?[0-9._]+|true|false)(?:$|[;,]| or )`)
	listValue = regexp.MustCompile(`^write (\[".*"\])$`)
)

// placeholders stand for what only the user knows.
var placeholders = strings.NewReplacer("HOST", "h.example", "PORT", "8080", "PATH", "/tmp/x",
	"NAME", "n0", "FILE", "f")

// remedies are the values that a label tells to write, as TOML writes them.
func remedies(label string) (list []string) {
	if found := listValue.FindStringSubmatch(label); found != nil {
		return slices.DeleteFunc(found[1:], func(s string) bool { return s == `["…"]` })
	}
	if found := wordList.FindStringSubmatch(label); found != nil {
		for word := range strings.SplitSeq(found[1], ", ") {
			list = append(list, strconv.Quote(word))
		}
	}
	if found := bounds.FindStringSubmatch(label); found != nil {
		for _, bound := range found[1:] {
			if bound = strings.Trim(bound, ";"); bound != "" {
				list = append(list, bound)
			}
		}
		label = percent.FindString(label)
	}
	for _, found := range percent.FindAllStringSubmatch(label, -1) {
		list = append(list, found[1])
	}
	for _, found := range bareValue.FindAllStringSubmatch(label, -1) {
		list = append(list, strings.TrimRight(found[1], "."))
	}
	label = strings.TrimPrefix(label, `"auto" is not offered here`)
	for _, found := range quotedWord.FindAllStringSubmatch(label, -1) {
		list = append(list, strconv.Quote(placeholders.Replace(found[1])))
	}
	return slices.DeleteFunc(list, func(s string) bool { return strings.Contains(s, "…") })
}

func isList(r *row) bool {
	field, _ := r.field(Default())
	return kindOf(field.Type()) == kindList
}

// TestRemediesAreTaken follows what each refusal tells to write instead, in a file: nobody who does
// is refused again.
func TestRemediesAreTaken(t *testing.T) {
	followed, none := 0, map[string]bool{}
	for i := range keys {
		r := &keys[i]
		fault := func(value string) (label string, wrong bool) {
			decoded, err := decodeValue(value)
			if err != nil {
				t.Fatalf("%s is not TOML: %v", value, err)
			}
			if wrong := r.assign(&Config{}, decoded); wrong != nil {
				return wrong.label, true
			}
			return "", false
		}
		for _, value := range mistaken {
			label, wrong := fault(value)
			if !wrong {
				continue
			}
			list := remedies(label)
			if list == nil {
				none[label] = true
			}
			for _, remedy := range list {
				if isList(r) && !strings.HasPrefix(remedy, "[") {
					remedy = "[" + remedy + "]" // It is about an element.
				}
				followed++
				if again, wrong := fault(remedy); wrong {
					t.Errorf("%s = %s: %s; %s is refused again: %s", r.name(), value, label, remedy,
						again)
				}
			}
		}
	}
	for label := range none {
		if !strings.ContainsAny(label, "…") && !strings.HasPrefix(label, "write it in quotes") {
			t.Logf("no value to follow in: %s", label)
		}
	}
	if followed < 1000 {
		t.Errorf("only %d remedies were followed", followed)
	}
}

// TestRemediesOfVariablesAreTaken does the same in the environment, whose values have quotes or
// none.
func TestRemediesOfVariablesAreTaken(t *testing.T) {
	followed := 0
	for i := range keys {
		r := &keys[i]
		fault := func(value string) (label string, wrong bool) {
			if wrong := r.assign(&Config{}, r.fromText(value)); wrong != nil {
				return wrong.label, true
			}
			return "", false
		}
		for _, value := range []string{"-1", "0", "24", "1.5", "nan", "99999999999", "true", "many",
			"yes", `"5"`, "5 s", "-5s", "9999999h", "512 mib", "a,b", `["x"]`} {
			label, wrong := fault(value)
			if !wrong {
				continue
			}
			for _, remedy := range remedies(label) {
				bare, err := strconv.Unquote(remedy)
				forms := []string{remedy, bare}
				if err != nil {
					forms = forms[:1]
				}
				for _, form := range forms {
					followed++
					if again, wrong := fault(form); wrong {
						t.Errorf("%s=%s: %s; %s is refused again: %s", r.variable(), value, label,
							form, again)
					}
				}
			}
		}
	}
	if followed < 2000 {
		t.Errorf("only %d remedies were followed", followed)
	}
}
