package main

import (
	"fmt"
	"strings"
)

// cView is the generated part of pol.h: constants, structs, and the proof of their layout.
func (s *schema) cView(what string) (string, error) {
	if what != "c" {
		return "", fmt.Errorf("there is no %q for C", what)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n#define POL_MAJOR %d\n#define POL_MINOR %d\n", s.ABI.Major, s.ABI.Minor)
	fmt.Fprintf(&b, "#define POL_MAGIC %#xu /* %s */\n", s.magic(), s.ABI.Magic)
	for _, c := range s.Codes {
		if c.Kind == "text" {
			continue
		}
		fmt.Fprintf(&b, "\n/* %s */\n", c.Title)
		for _, v := range c.Values {
			name := "POL_" + strings.ToUpper(c.Name+"_"+v.Name)
			fmt.Fprintf(&b, "#define %s %s /* %s */\n", name, cNumber(c.Type, v.number()), v.Doc)
		}
	}
	for _, r := range s.Records {
		cStruct(&b, r)
	}
	return b.String() + "\n", nil
}

// cNumber writes a constant with the suffix of its type.
func cNumber(ctype string, n int64) string {
	switch {
	case ctype == "u64":
		return fmt.Sprintf("%#xull", n)
	case n < 0:
		return fmt.Sprintf("(%d)", n)
	case strings.HasPrefix(ctype, "u"):
		return fmt.Sprintf("%du", n)
	}
	return fmt.Sprint(n)
}

func cStruct(b *strings.Builder, r record) {
	doc := strings.Join(strings.Fields(r.Doc), " ")
	doc = strings.Replace(doc, goName(r.Name), "pol_"+r.Name, 1)
	fmt.Fprintf(b, "\n/* %s */\ntypedef struct {\n", doc)
	for _, f := range r.Fields {
		decl := cType(f.Type) + " " + cField(f.Name)
		if f.Pad && f.bytes() > 8 || strings.HasPrefix(f.Type, "bytes:") {
			decl = fmt.Sprintf("uint8_t %s[%d]", f.Name, f.bytes())
		}
		note := ""
		if f.Later {
			note = " (later: 0)"
		}
		fmt.Fprintf(b, "    %s; /* %d: %s%s */\n", decl, f.Offset, f.Doc, note)
	}
	fmt.Fprintf(b, "} pol_%s;\n", r.Name)
	name := "pol_" + r.Name
	fmt.Fprintf(b, "POL_ASSERT(sizeof(%s) == %d, \"size of %s\");\n", name, r.Size, name)
	for _, f := range r.Fields {
		fmt.Fprintf(b, "POL_ASSERT(offsetof(%s, %s) == %d, \"%s.%s\");\n", name, cField(f.Name),
			f.Offset, name, f.Name)
	}
}

func cType(t string) string {
	return strings.NewReplacer("u", "uint", "i", "int").Replace(t) + "_t"
}

// cField keeps clear of the one field name that is a keyword of C++.
func cField(name string) string {
	if name == "class" {
		return "class_"
	}
	return name
}
