package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// row is one key: everything that is known about it.
type row struct {
	table, key string
	// at points to the field that holds the key. The field's type says how the value is written:
	// an int is a bare number, a Size "4GiB", an Auto also takes "auto".
	at func(*Config) any
	// def is the default as the file writes it.
	def string
	// least and most bound the value, both included, as the file writes them; "" is unbounded.
	least, most string
	// enum lists the words a text may be; alias maps what others call them.
	enum  []string
	alias map[string]string
	// form checks a text, or each element of a list.
	form *form
	// path says that a relative path is taken from the file's folder.
	path bool
	// powerOfTwo restricts a number.
	powerOfTwo bool
	// reload says that `engine reload` applies a change; every other needs a restart.
	reload bool
	// foreign are the names of the same setting in other servers.
	foreign []string
	// doc is the comment beside the key; help is added to the errors about its value.
	doc, help string
}

// name is the key with its table.
func (r *row) name() string { return r.table + "." + r.key }

// section is one [table] of the file and its comment, or with list set one [[table]].
type section struct {
	name, doc string
	list      bool
	sample    string // what the example shows in its place
}

// find returns the row of a key, or nil.
func find(table, key string) *row {
	for i := range keys {
		if keys[i].table == table && keys[i].key == key {
			return &keys[i]
		}
	}
	return nil
}

// rowsOf returns the keys of one table in order.
func rowsOf(table string) []*row {
	var rows []*row
	for i := range keys {
		if keys[i].table == table {
			rows = append(rows, &keys[i])
		}
	}
	return rows
}

// isTable says whether [name] has keys of its own or holds tables that do.
func isTable(name string) bool {
	return slices.ContainsFunc(sections, func(s section) bool {
		return s.name == name || strings.HasPrefix(s.name, name+".")
	})
}

// Default is the configuration of an empty file.
func Default() *Config {
	c := &Config{}
	for i := range keys {
		r := &keys[i]
		value, err := decodeValue(r.def)
		if err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", r.name(), err))
		}
		if wrong := r.assign(c, value); wrong != nil {
			panic(fmt.Sprintf("config: default of %s: %s", r.name(), wrong.message))
		}
	}
	return c
}

// decodeValue reads one value as the file writes it.
func decodeValue(text string) (any, error) {
	var v map[string]any
	_, err := toml.Decode("v = "+text, &v)
	return v["v"], err
}

// field is the settable field of r in c, and whether it may say "auto".
func (r *row) field(c *Config) (target reflect.Value, auto bool) {
	v := reflect.ValueOf(r.at(c)).Elem()
	if v.Kind() == reflect.Struct {
		return v, true
	}
	return v, false
}

// kind names how a field's value is written.
type kind string

// The kinds, as the messages call them.
const (
	kindNumber   kind = "number"
	kindFraction kind = "fraction" // also called a number
	kindSwitch   kind = "boolean"
	kindText     kind = "string"
	kindList     kind = "list"
	kindDuration kind = "duration"
	kindSize     kind = "size"
	kindRate     kind = "rate"
)

// kindOf tells the kind from the field's type.
func kindOf(t reflect.Type) kind {
	if t.Kind() == reflect.Struct { // An Auto.
		field, _ := t.FieldByName("Value")
		t = field.Type
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return kindDuration
	case reflect.TypeFor[Size]():
		return kindSize
	case reflect.TypeFor[Rate]():
		return kindRate
	}
	switch t.Kind() {
	case reflect.Bool:
		return kindSwitch
	case reflect.String:
		return kindText
	case reflect.Slice:
		return kindList
	case reflect.Float64:
		return kindFraction
	}
	return kindNumber
}

// format writes the value of r in c as the file would.
func (r *row) format(c *Config) string {
	v, auto := r.field(c)
	if auto {
		if !v.FieldByName("Set").Bool() {
			return `"auto"`
		}
		v = v.FieldByName("Value")
	}
	switch kindOf(v.Type()) {
	case kindDuration:
		return quote(formatDuration(time.Duration(v.Int())))
	case kindSize:
		return quote(formatSize(v.Int()))
	case kindRate:
		if v.Int() == 0 {
			return quote("unlimited")
		}
		return quote(formatSize(v.Int()) + "/s")
	case kindText:
		return quote(v.String())
	case kindList:
		return formatList(v.Interface().([]string))
	case kindFraction:
		return formatFraction(v.Float())
	}
	return fmt.Sprint(v.Interface())
}
