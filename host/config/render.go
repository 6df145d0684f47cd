package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// commentColumn is where comments start beside a key.
const commentColumn = 39

// Example is the commented file that `config init` writes: for role "" every key with its default,
// else a short file for that role that works as it is.
func Example(role Role) string {
	var b strings.Builder
	if role != "" {
		writeRole(&b, role)
		return b.String()
	}
	b.WriteString(exampleHead)
	for _, s := range sections {
		rows := rowsOf(s.name)
		if s.sample != "" {
			b.WriteString(s.sample)
		}
		if len(rows) == 0 {
			continue
		}
		b.WriteByte('\n')
		writeLine(&b, "["+s.name+"]", s.doc)
		for _, r := range rows {
			writeLine(&b, pad(r.key, keyWidth(rows))+" = "+r.def, r.doc)
		}
	}
	return b.String()
}

// exampleHead explains the rules of the file.
const exampleHead = `# engine.toml: every key with its default. An empty file is valid: embedded
# model, one process, loopback only. Durations ("250ms", "30s"), sizes ("512MiB", "4GiB") and rates
# ("100MiB/s") are strings with a unit; counts are bare numbers. "auto" only where the comment says
# so. Relative paths start at this file's folder.
version = 1                            # format of this file; the only key outside a table
`

// Show writes every key with its value in c, as a file that gives c again. A comment says what
// "auto" became (became maps a key such as "backend.threads" to that), and marks what differs from
// the default.
func Show(w io.Writer, c *Config, became map[string]string) {
	base := Default()
	show(w, c, func(r *row, value string) string {
		if value == `"auto"` && became[r.name()] != "" {
			return "= " + became[r.name()]
		}
		if old := r.format(base); value != old {
			return "default " + old
		}
		return ""
	})
}

// show writes every key with its value, and beside it what note says.
func show(w io.Writer, c *Config, note func(r *row, value string) string) {
	fmt.Fprintln(w, "version = 1")
	for _, s := range sections {
		rows := rowsOf(s.name)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n[%s]\n", s.name)
		for _, r := range rows {
			value := r.format(c)
			writeLine(w, pad(r.key, keyWidth(rows))+" = "+value, note(r, value))
		}
	}
	writeTables(w, c)
}

// Minimal is the shortest file that gives c: only what differs from the defaults.
func Minimal(c *Config) string {
	var b strings.Builder
	b.WriteString("version = 1\n")
	base := Default()
	for _, s := range sections {
		var rows []*row
		for _, r := range rowsOf(s.name) {
			if r.format(c) != r.format(base) {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n[%s]\n", s.name)
		for _, r := range rows {
			fmt.Fprintf(&b, "%s = %s\n", pad(r.key, keyWidth(rows)), r.format(c))
		}
	}
	writeTables(&b, c)
	return b.String()
}

// writeTables writes the tables that a file may hold any number of.
func writeTables(w io.Writer, c *Config) {
	for _, p := range c.Policies {
		fmt.Fprintf(w, "\n[policies.%s]\n", formatKey(p.Name))
		if p.Score != "" {
			fmt.Fprintf(w, "score  = %s\n", quote(p.Score))
			if p.Chunk != "" {
				fmt.Fprintf(w, "chunk  = %s\n", quote(p.Chunk))
			}
			continue
		}
		fmt.Fprintf(w, "path   = %s\n", quote(p.Path))
		if p.SHA256 != "" {
			fmt.Fprintf(w, "sha256 = %s\n", quote(p.SHA256))
		}
		if p.Config != nil {
			fmt.Fprintf(w, "config = %s\n", formatJSON(p.Config))
		}
	}
	for _, t := range c.Tenants {
		fmt.Fprintf(w, "\n[tenants.%s]\nweight   = %s\nmax_seqs = %d\n", formatKey(t.Name),
			formatFraction(t.Weight), t.MaxSeqs)
	}
	for _, list := range []struct {
		name      string
		instances []Instance
	}{{"router.prefill", c.Router.Prefill}, {"router.decode", c.Router.Decode}} {
		for _, i := range list.instances {
			fmt.Fprintf(w, "\n[[%s]]\n", list.name)
			fmt.Fprintf(w, "name = %s\nurl  = %s\n", quote(i.Name), quote(i.URL))
		}
	}
}

// writeRole writes the short file of one role. Its addresses are on loopback, so that the files of
// the three roles work together on one machine as they are.
func writeRole(w io.Writer, role Role) {
	fmt.Fprintf(w, "# %s.toml: %s. Every other key has its default (engine config init).\n",
		role, roleStories[role])
	fmt.Fprint(w, "# Addresses are on loopback, so that the files of all roles work together on "+
		"one machine;\n# across machines, listen on the address that the others dial.\n")
	fmt.Fprint(w, strings.ReplaceAll(roleFiles[role], "ROLE", string(role)))
}

// roleStories says what an instance of each role does.
var roleStories = map[Role]string{
	RoleAll:     "one process that does everything",
	RolePrefill: "computes prompts and sends their keys and values to a decode instance",
	RoleDecode:  "receives keys and values, generates text",
	RoleRouter:  "answers clients, pairs a prefill and a decode instance for each request",
}

// roleFiles are the bodies; a test loads each and checks it.
var roleFiles = map[Role]string{
	RoleAll: `version = 1

[node]
role = "all"

[listen]
api = "127.0.0.1:8080"

[model]
path = ""                              # folder, GGUF file or ORG/NAME; "" = embedded model

[policy]
active = "builtin:fcfs"
`,
	RolePrefill: `version = 1

[node]
role = "prefill"
name = "p0"

[listen]
api      = ""                          # /live, /ready, /metrics are on internal too
internal = "127.0.0.1:7602"

[model]
path = ""                              # the same on prefill and decode; "" = the embedded model

[policy]
active = "builtin:fcfs"

[transfer]
peers = ["127.0.0.0/8"]                # who may be dialled: the decode instances
`,
	RoleDecode: `version = 1

[node]
role = "decode"
name = "d0"

[listen]
api      = ""                          # /live, /ready, /metrics are on internal too
internal = "127.0.0.1:7603"

[model]
path = ""                              # the same on prefill and decode; "" = the embedded model
`,
	RoleRouter: `version = 1

[node]
role = "router"
name = "r0"

[listen]
api      = "127.0.0.1:8080"
internal = ""

[[router.prefill]]
name = "p0"
url  = "http://127.0.0.1:7602"

[[router.decode]]
name = "d0"
url  = "http://127.0.0.1:7603"
`,
}

// writeLine writes one line with its comment in the comment column.
func writeLine(w io.Writer, line, comment string) {
	if comment == "" {
		fmt.Fprintln(w, line)
		return
	}
	fmt.Fprintf(w, "%s # %s\n", pad(line, commentColumn-1), comment)
}

func keyWidth(rows []*row) int {
	width := 0
	for _, r := range rows {
		width = max(width, len(r.key))
	}
	return width
}

// pad fills s with spaces to width characters.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func formatList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// formatFraction writes a float that TOML reads as one.
func formatFraction(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".en") {
		s += ".0"
	}
	return s
}

// formatKey writes a name bare where TOML allows it.
func formatKey(name string) string {
	bare := func(r rune) bool {
		return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' ||
			r >= 'A' && r <= 'Z'
	}
	if name != "" && strings.TrimFunc(name, bare) == "" {
		return name
	}
	return quote(name)
}
