package pol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvrelay/engine/abi"
)

// Config is the operator's settings, a JSON object. They are asked for by key, with their default
// and range. The first thing wrong is kept and fails the load, and so does a key nobody asked for:
// a typing mistake must not pass in silence.
//
// It reads the text itself, because encoding/json would double a small module.
type Config struct {
	text  string
	asked []string
	err   error
}

// member is one key and its value, as they stand in the text.
type member struct{ key, value string }

func newConfig(settings []byte) *Config {
	if len(settings) == 0 {
		settings = []byte("{}")
	}
	return &Config{text: string(settings)}
}

// Int is a whole number from lowest to highest; without the key it is standard.
func (c *Config) Int(key string, standard, lowest, highest int64) int64 {
	text, ok := c.find(key)
	if !ok {
		return standard
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || text[0] == '+' || n < lowest || n > highest {
		c.fail("%s must be a whole number from %d to %d", key, lowest, highest)
		return standard
	}
	return n
}

// Bool is true or false; without the key it is standard.
func (c *Config) Bool(key string, standard bool) bool {
	text, ok := c.find(key)
	if ok && text != "true" && text != "false" {
		c.fail("%s must be true or false", key)
	}
	if !ok {
		return standard
	}
	return text == "true"
}

func (c *Config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &Error{abi.CodeBadConfig, "config: " + fmt.Sprintf(format, args...)}
	}
}

func (c *Config) find(key string) (value string, ok bool) {
	c.asked = append(c.asked, key)
	members, good := object(c.text)
	if !good {
		c.fail("settings are not a JSON object")
	}
	for _, m := range members {
		if m.key == key {
			return m.value, true
		}
	}
	return "", false
}

// end refuses what nobody asked for.
func (c *Config) end() error {
	members, good := object(c.text)
	if !good {
		c.fail("settings are not a JSON object")
	}
	for _, m := range members {
		if !slices.Contains(c.asked, m.key) {
			c.fail("there is no setting %s", m.key)
		}
	}
	return c.err
}

// object splits a JSON object into its members. Keys are taken as written: one with an escape in it
// is no setting's name.
func object(text string) (members []member, ok bool) {
	at := space(text, 0)
	if at >= len(text) || text[at] != '{' {
		return nil, false
	}
	at = space(text, at+1)
	if at < len(text) && text[at] == '}' {
		return nil, true
	}
	for {
		if at >= len(text) || text[at] != '"' {
			return nil, false
		}
		end := skip(text, at)
		colon := space(text, max(end, at))
		if end == 0 || colon >= len(text) || text[colon] != ':' {
			return nil, false
		}
		start := space(text, colon+1)
		stop := skip(text, start)
		if stop == 0 {
			return nil, false
		}
		members = append(members, member{text[at+1 : end-1], text[start:stop]})
		at = space(text, stop)
		switch {
		case at < len(text) && text[at] == '}':
			return members, true
		case at >= len(text) || text[at] != ',':
			return nil, false
		}
		at = space(text, at+1)
	}
}

func space(text string, at int) int {
	for at < len(text) && strings.IndexByte(" \t\r\n", text[at]) >= 0 {
		at++
	}
	return at
}

// skip is the end of the value that starts at a place, 0 if there is none.
func skip(text string, start int) int {
	depth := 0
	for at := start; at < len(text); at++ {
		switch text[at] {
		case '"':
			for at++; at < len(text) && text[at] != '"'; at++ {
				if text[at] == '\\' {
					at++
				}
			}
			if at >= len(text) {
				return 0
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 1 {
				return at + 1
			}
			if depth--; depth < 0 {
				return ended(at, start)
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return ended(at, start)
			}
		}
	}
	return 0
}

func ended(at, start int) int {
	if at == start {
		return 0
	}
	return at
}
