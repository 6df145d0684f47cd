package main

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/plugins/builtin"
	"github.com/kvrelay/engine/plugins/policyfile"
)

// reasonsFor are the words for the reason numbers of a module's decisions: of builtin:NAME what the
// binary has, of a file's what the policy.toml in its folder says; nil where there is none that can
// be read. They are for people only: nothing fails for want of them.
func reasonsFor(module string) map[uint16]string {
	var file *policyfile.File
	var err error
	if name, ok := strings.CutPrefix(module, "builtin:"); ok {
		text, _ := builtin.About(name)
		file, err = policyfile.Parse(string(text))
	} else {
		file, err = policyfile.Read(filepath.Join(filepath.Dir(module), "policy.toml"))
	}
	if err != nil {
		return nil
	}
	words := map[uint16]string{}
	for text, word := range file.Reasons {
		if number, err := strconv.ParseUint(text, 10, 16); err == nil {
			words[uint16(number)] = word
		}
	}
	return words
}
