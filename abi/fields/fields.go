// Package fields finds the fields of the ABI's records by the names that SPEC.md gives them: for
// expressions and test cases, in which people write such names.
package fields

import (
	"reflect"
	"strings"
	"unicode"
)

// Field is a number in a record.
type Field struct {
	Name   string // as in SPEC.md: remaining_prefill
	Offset int    // bytes from the record's start
	Kind   reflect.Kind
	index  int
}

// Of lists the fields of a record of package abi in the order of their offsets. The structs lie in
// memory as SPEC.md lays out the records; a test of this package holds them to it.
func Of[T any]() []Field {
	t := reflect.TypeFor[T]()
	list := make([]Field, t.NumField())
	for i := range list {
		f := t.Field(i)
		list[i] = Field{Name(f.Name), int(f.Offset), f.Type.Kind(), i}
	}
	return list
}

// Find is the field of that name.
func Find[T any](name string) (Field, bool) {
	for _, f := range Of[T]() {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// Set gives a field of *record a value; false when the value does not fit.
func Set[T any](record *T, f Field, value int64) bool {
	v := reflect.ValueOf(record).Elem().Field(f.index)
	if v.CanInt() {
		if v.OverflowInt(value) {
			return false
		}
		v.SetInt(value)
		return true
	}
	if value < 0 || v.OverflowUint(uint64(value)) {
		return false
	}
	v.SetUint(uint64(value))
	return true
}

// Get is the value of a field as its bits; signed fields are sign-extended.
func Get[T any](record *T, f Field) uint64 {
	v := reflect.ValueOf(record).Elem().Field(f.index)
	if v.CanInt() {
		return uint64(v.Int())
	}
	return v.Uint()
}

// Name turns Go's name of a field into SPEC.md's: LeaseMSLeft becomes lease_ms_left.
func Name(goName string) string {
	letters := []rune(goName)
	var b strings.Builder
	for i, c := range letters {
		starts := i > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(letters[i-1]) ||
			i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if starts {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
