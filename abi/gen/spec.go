package main

import (
	"bytes"
	"fmt"
	"strings"
)

// splice replaces what stands between the marks of a text by generated lines. A mark is a line that
// contains `abi: WHAT`, its end one that contains `abi: end`; both stay.
func splice(text []byte, make func(what string) (string, error)) ([]byte, error) {
	var b bytes.Buffer
	open := ""
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		what, marked := mark(line)
		switch {
		case marked && what == "end" && open == "":
			return nil, fmt.Errorf("line %d: end without a beginning", number)
		case marked && what == "end":
			open = ""
		case marked && open != "":
			return nil, fmt.Errorf("line %d: %q begins inside %q", number, what, open)
		case marked:
			lines, err := make(what)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			b.WriteString(line + lines)
			open = what
			continue
		case open != "":
			continue
		}
		b.WriteString(line)
	}
	if open != "" {
		return nil, fmt.Errorf("%q has no end", open)
	}
	return b.Bytes(), nil
}

// mark reads `<!-- abi: WHAT -->` and `/* abi: WHAT */`.
func mark(line string) (what string, ok bool) {
	line = strings.TrimSpace(line)
	for _, quotes := range [][2]string{{"<!-- abi: ", " -->"}, {"/* abi: ", " */"}} {
		rest, front := strings.CutPrefix(line, quotes[0])
		rest, back := strings.CutSuffix(rest, quotes[1])
		if front && back {
			return rest, true
		}
	}
	return "", false
}

// specTable is one generated part of SPEC.md.
func (s *schema) specTable(what string) (string, error) {
	kind, name, _ := strings.Cut(what, " ")
	switch kind {
	case "record":
		for _, r := range s.Records {
			if r.Name == name {
				return specRecord(r), nil
			}
		}
	case "codes":
		for _, c := range s.Codes {
			if c.Name == name {
				return specCodes(c), nil
			}
		}
	case "exports":
		return specExports(s.Exports), nil
	case "imports":
		return specImports(s.Imports), nil
	case "limits":
		return specLimits(s.Limits), nil
	}
	return "", fmt.Errorf("there is no %q in abi.toml", what)
}

func specRecord(r record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n**%s: %d bytes**%s\n\n", r.Table, r.Size, later(r.Later))
	b.WriteString("| offset | type | field | meaning | source |\n|---:|---|---|---|---|\n")
	for _, f := range r.Fields {
		name := "`" + f.Name + "`"
		if f.Pad {
			name = f.Name
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s%s |\n", f.Offset,
			strings.Replace(f.Type, "bytes:", "bytes ", 1), name, f.Doc, f.Source, later(f.Later))
	}
	return b.String() + "\n"
}

// later marks what has no source yet.
func later(yes bool) string {
	if yes {
		return " (**later**)"
	}
	return ""
}

func specCodes(c codes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n**%s**%s\n\n", c.Title, later(c.Later))
	switch {
	case c.Kind == "text":
		b.WriteString("| name | meaning |\n|---|---|\n")
		for _, v := range c.Values {
			fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.Doc)
		}
	case c.Values[0].Bit != nil:
		b.WriteString("| bit | name | offered | meaning |\n|---:|---|---|---|\n")
		for _, v := range c.Values {
			fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", *v.Bit, v.Name, yesNo(v.Offered), v.Doc)
		}
	default:
		b.WriteString("| value | name | meaning |\n|---:|---|---|\n")
		for _, v := range c.Values {
			fmt.Fprintf(&b, "| %d | `%s` | %s |\n", v.Value, v.Name, v.Doc)
		}
	}
	return b.String() + "\n"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func specExports(list []function) string {
	var b strings.Builder
	b.WriteString("\n| export | type | required | meaning |\n|---|---|---|---|\n")
	for _, f := range list {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s%s | %s |\n", f.Name, f.Signature, yesNo(f.Required),
			later(f.Later), f.Doc)
	}
	return b.String() + "\n"
}

func specImports(list []function) string {
	var b strings.Builder
	b.WriteString("\n| module | name | type | meaning |\n|---|---|---|---|\n")
	for _, f := range list {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s |\n", f.Module, f.Name, f.Signature, f.Doc)
	}
	return b.String() + "\n"
}

func specLimits(list []limit) string {
	var b strings.Builder
	b.WriteString("\n| limit | value | of what |\n|---|---:|---|\n")
	for _, l := range list {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.Name, thousands(l.Value), l.Doc)
	}
	return b.String() + "\n"
}

// thousands writes a number with commas.
func thousands(n int64) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
