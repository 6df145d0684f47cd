package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// goldenByte is the byte at an offset of every golden record: a pattern in which no two neighbours
// are alike, so that a field read from the wrong place or in the wrong order shows.
func goldenByte(offset int) byte { return byte(37*offset + 11) }

// goldenValue is a field's value in the golden record.
func goldenValue(f field) uint64 {
	v := uint64(0)
	for k := range f.bytes() {
		v |= uint64(goldenByte(f.Offset+k)) << (8 * k)
	}
	return v
}

// goldenText is one record as text: offset, bytes as they stand in memory, type, name, value.
func goldenText(r record) []byte {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, "# %s, %d bytes. Generated from abi.toml.\n", r.Name, r.Size)
	b.WriteString("# offset  bytes in memory, hexadecimal  type  field = value\n")
	for _, f := range r.Fields {
		raw := make([]byte, f.bytes())
		for k := range raw {
			if !f.Pad {
				raw[k] = goldenByte(f.Offset + k)
			}
		}
		fmt.Fprintf(b, "%-4d  %-24x  %-8s  %s", f.Offset, raw, f.Type, f.Name)
		if !f.Pad {
			b.WriteString(" = " + literal(f))
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

// literal is the golden value in decimal, signed where the field is.
func literal(f field) string {
	v := goldenValue(f)
	switch f.Type {
	case "i32":
		return fmt.Sprint(int32(v))
	case "i64":
		return fmt.Sprint(int64(v))
	}
	return fmt.Sprint(v)
}

// goGolden is the Go test data: the golden records as struct literals.
func goGolden(s *schema) ([]byte, error) {
	b := bytes.NewBufferString(goHead)
	b.WriteString("package abi\n\n")
	for _, r := range s.Records {
		name := goName(r.Name)
		fmt.Fprintf(b, "func golden%s() *%s {\nreturn &%s{\n", name, name, name)
		for _, f := range r.Fields {
			if !f.Pad {
				fmt.Fprintf(b, "%s: %s,\n", goName(f.Name), literal(f))
			}
		}
		b.WriteString("}\n}\n\n")
	}
	return format.Source([]byte(strings.TrimRight(b.String(), "\n") + "\n"))
}
