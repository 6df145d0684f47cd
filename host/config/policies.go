package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// Builtins are the policies that the binary ships, as policy.active names them.
func Builtins() []string {
	return []string{
		"builtin:edf-relegate", "builtin:fcfs", "builtin:prefix-affinity", "builtin:priority",
		"builtin:sarathi", "builtin:send-aware", "builtin:sjf-aging", "builtin:slo-chunk",
		"builtin:tenant-quota", "builtin:vtc",
	}
}

// BuiltinNames lists them on one line, without what they all begin with.
func BuiltinNames() string {
	return strings.ReplaceAll(strings.Join(Builtins(), ", "), builtinPrefix, "")
}

// policies checks the [policies.NAME] tables.
func (c *checker) policies(value any, n *node) {
	if value == nil {
		return
	}
	modules, ok := value.(map[string]any)
	if !ok {
		c.report(n.value, "E011", "policies holds a table for each module",
			"write [policies.NAME], its keys below")
		return
	}
	for _, name := range inOrder(n, modules) {
		kid := n.child(name)
		values, ok := modules[name].(map[string]any)
		if !ok {
			c.report(kid.key, "E011", fmt.Sprintf("policies.%s is a table", name),
				fmt.Sprintf("write [policies.%s], its keys below", name))
			continue
		}
		if label := checkName(name); label != "" {
			c.report(kid.name, codeForm, fmt.Sprintf("policies: %q is not a name", name), label)
			continue
		}
		c.config.Policies = append(c.config.Policies, c.module(name, values, kid))
	}
}

// module checks one [policies.NAME].
func (c *checker) module(name string, values map[string]any, n *node) PolicyModule {
	m := PolicyModule{Name: name}
	full := "policies." + name
	for _, key := range inOrder(n, values) {
		kid := n.child(key)
		c.file.set++
		switch key {
		case "path":
			c.text(kid, full+".path", values[key], &m.Path, moduleForm)
			if !strings.HasPrefix(m.Path, builtinPrefix) {
				m.Path = c.join(m.Path)
			}
		case "sha256":
			c.text(kid, full+".sha256", values[key], &m.SHA256, digestForm)
			m.SHA256 = strings.ToLower(m.SHA256)
		case "score":
			c.text(kid, full+".score", values[key], &m.Score, expressionForm)
		case "chunk":
			c.text(kid, full+".chunk", values[key], &m.Chunk, expressionForm)
		case "config":
			m.Config = c.moduleConfig(full, values[key], kid)
		default:
			c.report(kid.key, "E101", fmt.Sprintf("unknown key %q in [%s]", key, full),
				orElse(didYouMean(closest(key, moduleKeys())),
					"it has path, sha256 and config, or score and chunk"))
		}
	}
	c.moduleOrScore(full, values, n)
	return m
}

func moduleKeys() []string { return []string{"path", "sha256", "config", "score", "chunk"} }

// moduleOrScore wants a module or an expression in its place, not both.
func (c *checker) moduleOrScore(full string, values map[string]any, n *node) {
	_, path := values["path"]
	_, score := values["score"]
	if !path && !score {
		c.report(n.value, "E102", fmt.Sprintf("[%s] has no path", full), `add path = "FILE.wasm"`,
			`or score = "remaining_prefill - 200*age_s": the smallest runs first`)
		return
	}
	for _, key := range []string{"path", "sha256", "config"} {
		if _, given := values[key]; given && score {
			c.report(n.child(key).key, "E203", fmt.Sprintf("[%s] has score and %s", full, key),
				"a score stands in place of a module: leave one of them out")
		}
	}
	if _, chunk := values["chunk"]; chunk && !score {
		c.report(n.child("chunk").key, "E203", fmt.Sprintf("[%s] has chunk and no score", full),
			"a module sets its chunk lengths itself")
	}
}

// expressionForm is the text of an expression; what is wrong in it is found when it is compiled.
var expressionForm = &form{"an expression", func(s string) string {
	if s == "" {
		return `write an expression, such as "remaining_prefill - 200*age_s"`
	}
	return ""
}}

// builtinPrefix begins the name of a policy that the binary ships.
const builtinPrefix = "builtin:"

// moduleForm is the path of a module, or a shipped policy that gets settings.
var moduleForm = &form{"the path of a module", func(s string) string {
	if s == "" {
		return `write the path of a .wasm file, or builtin:NAME`
	}
	if strings.HasPrefix(s, builtinPrefix) && !slices.Contains(Builtins(), s) {
		return "built in: " + BuiltinNames()
	}
	return ""
}}

// moduleConfig is the table as JSON, names sorted, so that equal tables give equal bytes.
func (c *checker) moduleConfig(name string, value any, n *node) []byte {
	values, ok := value.(map[string]any)
	if !ok {
		c.report(n.value, codeType, name+".config must be a table", `write { key = "value" }`)
		return nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		c.report(n.value, codeForm, fmt.Sprintf("%s.config cannot be written as JSON", name),
			"JSON has no inf and no nan")
		return nil
	}
	return text
}

// formatJSON writes JSON as a TOML value on one line.
func formatJSON(text []byte) string {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		panic(fmt.Sprintf("config: a module's config is not JSON: %v", err))
	}
	return formatAny(v)
}

func formatAny(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, formatKey(key)+" = "+formatAny(v[key]))
		}
		return strings.TrimRight("{ "+strings.Join(parts, ", "), " ") + " }"
	case []any:
		var parts []string
		for _, item := range v {
			parts = append(parts, formatAny(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return quote(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return fmt.Sprintf("%.0f", v)
		}
		return formatFraction(v)
	}
	return fmt.Sprint(v)
}

// resolve joins a relative path of a key to the file's folder. Of an address to listen on, only a
// socket is a path.
func (c *checker) resolve(r *row) {
	join := c.join
	if r.form == listenForm {
		join = c.joinSocket
	}
	switch field := r.at(c.config).(type) {
	case *string:
		*field = join(*field)
	case *Auto[string]:
		field.Value = join(field.Value)
	case *[]string:
		for i, path := range *field {
			(*field)[i] = join(path)
		}
	}
}

// join joins a relative path to the file's folder.
func (c *checker) join(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(c.file.folder, path)
}

// joinSocket joins what follows "unix:".
func (c *checker) joinSocket(address string) string {
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		return "unix:" + c.join(socket)
	}
	return address
}
