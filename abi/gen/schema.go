package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// schema is abi.toml as it stands.
type schema struct {
	ABI     version    `toml:"abi"`
	Records []record   `toml:"record"`
	Codes   []codes    `toml:"codes"`
	Limits  []limit    `toml:"limit"`
	Exports []function `toml:"export"`
	Imports []function `toml:"import"`
}

type version struct {
	Major, Minor int
	Magic        string
}

type record struct {
	Name, Doc, Table string
	Size             int
	Later            bool
	Fields           []field `toml:"field"`
}

type field struct {
	Offset                  int
	Type, Name, Doc, Source string
	Later, Pad              bool
}

type codes struct {
	Name, Title, Kind, Type string
	Later, Names            bool
	Values                  []value `toml:"value"`
}

type value struct {
	Name, Doc string
	Value     int64
	Bit       *int
	Offered   bool
}

type limit struct {
	Name, Doc string
	Value     int64
}

type function struct {
	Module, Name, Signature, Doc string
	Required, Later              bool
}

// bytes is the size of a field's type.
func (f field) bytes() int {
	if n, ok := strings.CutPrefix(f.Type, "bytes:"); ok {
		size, _ := strconv.Atoi(n)
		return size
	}
	bits, _ := strconv.Atoi(strings.TrimLeft(f.Type, "ui"))
	return bits / 8
}

// number is the value of a code, whichever way abi.toml gives it.
func (v value) number() int64 {
	if v.Bit != nil {
		return 1 << *v.Bit
	}
	return v.Value
}

// magic is the mark's bytes as a little-endian number.
func (s *schema) magic() uint32 {
	magic := uint32(0)
	for i, c := range []byte(s.ABI.Magic) {
		magic |= uint32(c) << (8 * i)
	}
	return magic
}

// load reads abi.toml and refuses what would make an ambiguous or padded layout.
func load(path string) (*schema, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(schema)
	meta, err := toml.Decode(string(text), s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("%s: unknown keys %v", path, extra)
	}
	for _, r := range s.Records {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("%s: record %s: %w", path, r.Name, err)
		}
	}
	for _, c := range s.Codes {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("%s: codes %s: %w", path, c.Name, err)
		}
	}
	return s, nil
}

// check holds a record to a layout that every language lays out alike: fields in order, no holes,
// each aligned to its size, the whole a multiple of eight bytes.
func (r record) check() error {
	next := 0
	var names []string
	for _, f := range r.Fields {
		size := f.bytes()
		if size == 0 {
			return fmt.Errorf("field %s: type %q", f.Name, f.Type)
		}
		if f.Offset != next {
			return fmt.Errorf("field %s: at %d, the one before ends at %d", f.Name, f.Offset, next)
		}
		if !f.Pad && f.Offset%size != 0 {
			return fmt.Errorf("field %s: offset %d is no multiple of %d", f.Name, f.Offset, size)
		}
		if f.Doc == "" || (f.Source == "" && !f.Pad) {
			return fmt.Errorf("field %s: needs a doc and a source", f.Name)
		}
		if slices.Contains(names, f.Name) {
			return fmt.Errorf("field %s: named twice", f.Name)
		}
		names = append(names, f.Name)
		next += size
	}
	if next != r.Size || r.Size%8 != 0 {
		return fmt.Errorf("fields end at %d, size is %d", next, r.Size)
	}
	return nil
}

func (c codes) check() error {
	if !slices.Contains([]string{"bits", "enum", "text"}, c.Kind) {
		return fmt.Errorf("kind %q", c.Kind)
	}
	for i, v := range c.Values {
		if v.Doc == "" {
			return fmt.Errorf("%s: needs a doc", v.Name)
		}
		for _, w := range c.Values[:i] {
			if v.Name == w.Name || (c.Kind != "text" && v.number() == w.number()) {
				return fmt.Errorf("%s and %s are the same", w.Name, v.Name)
			}
		}
		if n := v.number(); c.Kind == "bits" && (n <= 0 || n&(n-1) != 0) {
			return fmt.Errorf("%s: %d is not one bit", v.Name, n)
		}
	}
	return nil
}
