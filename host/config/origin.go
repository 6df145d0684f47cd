package config

import (
	"fmt"
	"io"
)

// Origin says where the value of a key comes from: the name of an environment variable, FILE:LINE,
// or "default".
func (c *Config) Origin(key string) string {
	if c.file == nil {
		return "default"
	}
	if env := c.file.env[key]; env != "" {
		return "env " + env
	}
	if n := c.file.find(key); n != nil {
		return fmt.Sprintf("%s:%d", c.file.name, c.file.lineOf(n.value))
	}
	return "default"
}

// ShowEffective is Show with the origin of each value in its comment.
func ShowEffective(w io.Writer, c *Config, became map[string]string) {
	show(w, c, func(r *row, value string) string {
		note := c.Origin(r.name())
		if value == `"auto"` && became[r.name()] != "" {
			note += ", = " + became[r.name()]
		}
		return note
	})
}
