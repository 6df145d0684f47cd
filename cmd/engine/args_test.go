package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestNoFlagIsEmpty gives every flag of every command that has words for a value an empty one.
func TestNoFlagIsEmpty(t *testing.T) {
	count := 0
	each(rootCommand(), func(cmd *cobra.Command) {
		for _, f := range visited(cmd.LocalFlags().VisitAll) {
			kind := f.Value.Type()
			if kind != "string" && kind != "stringSlice" && kind != "stringArray" {
				continue
			}
			count++
			path := strings.Fields(cmd.CommandPath())[1:]
			got := invoke(t, "", append(path, "--"+f.Name, "")...)
			if got.code != exitUsage || got.out != "" ||
				!strings.Contains(got.err, "--"+f.Name+" is empty: ") {
				t.Errorf("%v --%s: %+v", path, f.Name, got)
			}
		}
	})
	if count < 30 {
		t.Errorf("only %d flags were seen", count)
	}
}

// TestFlagsInOurWords: no function of a library is named to people.
func TestFlagsInOurWords(t *testing.T) {
	for line, want := range map[string]string{
		"bench -p 99999999999999999999":                  "99999999999999999999 is out of range",
		"bench -p 1,y":                                   `"y" is no whole number`,
		"bench --rate x":                                 `"x" is no number`,
		"bench --seed -1":                                "-1 is negative",
		"bench --kernels=maybe":                          `"maybe" is neither true nor false`,
		"run --max-tokens 1.5 x":                         `"1.5" is no whole number`,
		"run --temperature 1e999 x":                      "1e999 is out of range",
		"bench gate a --rounds 0x1ffffff1ffffff1ffffff1": "is out of range",
	} {
		got := invoke(t, "", strings.Fields(line)...)
		if got.code != exitUsage || !strings.Contains(got.err, want) ||
			strings.Contains(got.err, "strconv") {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
}
