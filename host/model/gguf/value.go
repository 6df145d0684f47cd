package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// kind is the type of a metadata value, numbered as in the format.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// width is the size of a value of a fixed size, else 0.
func (k kind) width() int {
	switch k {
	case kindU8, kindI8, kindBool:
		return 1
	case kindU16, kindI16:
		return 2
	case kindU32, kindI32, kindF32:
		return 4
	case kindU64, kindI64, kindF64:
		return 8
	}
	return 0
}

// maxArrayDepth bounds arrays of arrays.
const maxArrayDepth = 4

// value is one metadata value, left as it stands in the file: the bytes of the number, the text, or
// the elements of an array.
type value struct {
	kind kind
	of   kind // elements of an array
	n    int  // their number
	raw  []byte
}

// value reads the value of a key.
func (c *cursor) value(key string) value {
	v := value{kind: kind(c.u32("its type"))}
	switch w := v.kind.width(); {
	case c.err != nil:
	case w > 0:
		v.raw = c.take(uint64(w), "its value")
	case v.kind == kindString:
		v.raw = c.take(c.u64("its length"), "its text")
	case v.kind == kindArray:
		v.of, v.n, v.raw = c.array(0)
	default:
		c.err = fmt.Errorf("value type %d is not known", uint32(v.kind))
	}
	if c.err == nil && v.kind == kindBool && v.raw[0] > 1 {
		c.err = fmt.Errorf("a truth value of %d; 0 and 1 are possible", v.raw[0])
	}
	if c.err != nil && key != "" {
		c.err = fmt.Errorf("%q: %w", key, c.err)
	}
	return v
}

// array steps over an array and returns its elements as they stand.
func (c *cursor) array(depth int) (of kind, n int, raw []byte) {
	of = kind(c.u32("the type of its elements"))
	each := of.width()
	switch {
	case c.err != nil:
		return of, 0, nil
	case each > 0:
	case of == kindString:
		each = 8
	case of == kindArray && depth < maxArrayDepth:
		each = 12
	case of == kindArray:
		c.err = fmt.Errorf("arrays are nested deeper than %d", maxArrayDepth)
	default:
		c.err = fmt.Errorf("value type %d is not known", uint32(of))
	}
	if c.err != nil {
		return of, 0, nil
	}
	count := c.count(each, "the number of its elements")
	from := c.at
	for range count {
		if of == kindString {
			c.take(c.u64("an element's length"), "an element's text")
		} else if of == kindArray {
			c.array(depth + 1)
		} else {
			c.take(count*uint64(each), "its elements")
			break
		}
		if c.err != nil {
			return of, 0, nil
		}
	}
	return of, int(count), c.data[from:c.at]
}

// number is the value of a number of any width; integers are exact up to 2⁵³.
func number(k kind, raw []byte) (float64, bool) {
	le := binary.LittleEndian
	switch k {
	case kindU8:
		return float64(raw[0]), true
	case kindI8:
		return float64(int8(raw[0])), true
	case kindU16:
		return float64(le.Uint16(raw)), true
	case kindI16:
		return float64(int16(le.Uint16(raw))), true
	case kindU32:
		return float64(le.Uint32(raw)), true
	case kindI32:
		return float64(int32(le.Uint32(raw))), true
	case kindU64:
		return float64(le.Uint64(raw)), true
	case kindI64:
		return float64(int64(le.Uint64(raw))), true
	case kindF32:
		return float64(math.Float32frombits(le.Uint32(raw))), true
	case kindF64:
		return math.Float64frombits(le.Uint64(raw)), true
	}
	return 0, false
}

// strings are the elements of an array of strings. They share no memory with the file.
func (v value) strings() ([]string, error) {
	if v.kind != kindArray || v.of != kindString {
		return nil, errors.New("is not an array of strings")
	}
	c := &cursor{data: v.raw}
	list := make([]string, 0, v.n)
	for range v.n {
		list = append(list, string(c.take(c.u64(""), "")))
	}
	return list, c.err
}

// numbers are the elements of an array of numbers.
func (v value) numbers() ([]float64, error) {
	w := v.of.width()
	if v.kind != kindArray || w == 0 || v.of == kindBool {
		return nil, errors.New("is not an array of numbers")
	}
	list := make([]float64, v.n)
	for i := range list {
		list[i], _ = number(v.of, v.raw[i*w:])
	}
	return list, nil
}
