package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// envPrefix begins the names of the variables that override keys: ENGINE__KV_CACHE__MEMORY is
// kv_cache.memory.
const envPrefix = "ENGINE__"

// variable is the name that overrides a key.
func (r *row) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(r.name(), ".", "__"))
}

// environment puts what the variables say over what the file says. A name that fits no key is an
// error: it would be ignored in silence.
func (c *checker) environment(environ []string) {
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		r := rowOfVariable(name)
		if r == nil {
			c.noVariable(name)
			continue
		}
		if c.file.env == nil {
			c.file.env = map[string]string{}
		}
		c.file.env[r.name()] = name
		delete(c.bad, r.name())
		c.override(r, name, text)
	}
}

// override stores the value of a variable.
func (c *checker) override(r *row, name, text string) {
	wrong := r.assign(c.config, r.fromText(text))
	if wrong == nil {
		return // A path stays relative to the working directory: no file gave it.
	}
	c.bad[r.name()] = true
	help := wrong.help
	if r.help != "" && wrong.code != codeType {
		help = append(help, r.help)
	}
	// No value of a variable needs quotes.
	label := strings.TrimSuffix(wrong.label, ", without quotes")
	c.report(place{env: name}, wrong.code, wrong.message, label, help...)
}

// fromText reads the value of a variable: what TOML would need quotes for needs none here, and may
// have them; a list may be separated by commas.
func (r *row) fromText(text string) any {
	field, _ := r.field(Default())
	switch kindOf(field.Type()) {
	case kindNumber, kindFraction, kindSwitch:
		if v, err := decodeValue(text); err == nil {
			return v
		}
	case kindList:
		if strings.HasPrefix(strings.TrimSpace(text), "[") {
			if v, err := decodeValue(text); err == nil {
				return v
			}
			return text
		}
		list := []any{}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, withoutQuotes(part))
			}
		}
		return list
	}
	return withoutQuotes(text)
}

// withoutQuotes takes away the quotes of TOML, which some write around the value of a variable.
func withoutQuotes(text string) string {
	if bare, err := strconv.Unquote(text); err == nil && strings.HasPrefix(text, `"`) {
		return bare
	}
	return text
}

func rowOfVariable(name string) *row {
	for i := range keys {
		if keys[i].variable() == name {
			return &keys[i]
		}
	}
	return nil
}

// noVariable reports a variable that fits no key.
func (c *checker) noVariable(name string) {
	var names []string
	for i := range keys {
		names = append(names, strings.ToLower(keys[i].variable()))
	}
	label := didYouMean(strings.ToUpper(closest(name, names)))
	var help []string
	if label == "" {
		label = "a variable is ENGINE__TABLE__KEY in capitals, such as " + keys[0].variable()
		help = []string{"`engine config show` lists every key"}
	}
	c.report(place{env: name}, "E140", fmt.Sprintf("%.80s fits no key", name), label, help...)
}
