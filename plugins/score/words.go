package score

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/abi/fields"
)

// Word is a name that expressions can use.
type Word struct {
	Name, Doc string
	emit      func(c *compiler)
}

// hidden are the header's fields that say nothing about the step.
var hidden = []string{
	"magic", "minor", "header_size", "record_stride", "records_ptr", "changed_ptr", "n_changed",
	"decisions_cap", "decisions_ptr", "decision_stride", "tenants_ptr", "n_tenants", "n_preset",
	"peers_ptr", "n_peers", "flags", "n_slots",
}

// Words lists all names.
func Words() []Word {
	list := []Word{
		{"age_s", "seconds since it arrived", func(c *compiler) {
			c.seconds(place(localHeader, headerField("now_ns")), recordPlace("arrival_ns"))
		}},
		{"deadline_s", "seconds until its deadline; infinite without one", func(c *compiler) {
			c.number(math.Inf(1))
			c.seconds(recordPlace("deadline_ns"), place(localHeader, headerField("now_ns")))
			c.load(opI64Load, recordPlace("deadline_ns"))
			c.emit(opI64Eqz, opSelect)
		}},
		{"budget", "prefill tokens left in this step", func(c *compiler) {
			c.emit(opLocalGet, localLeft, opF64OfU32)
		}},
		{"waiting", "1 if it holds no pages, else 0", func(c *compiler) {
			c.load(opI32Load, recordPlace("state"))
			c.emit(opI32Const, abi.StateRunning, opI32And, opI32Eqz, opF64OfU32)
		}},
	}
	for _, f := range fields.Of[abi.Record]() {
		list = append(list, Word{f.Name, "of the request", fieldOf(localRecord, f)})
	}
	for _, f := range fields.Of[abi.Header]() {
		if !slices.Contains(hidden, f.Name) {
			list = append(list, Word{f.Name, "of the step", fieldOf(localHeader, f)})
		}
	}
	return list
}

func find(name string) (Word, bool) {
	list := Words()
	i := slices.IndexFunc(list, func(w Word) bool { return w.Name == name })
	if i < 0 {
		return Word{}, false
	}
	return list[i], true
}

// address is a place in the record or the header.
type address struct {
	local  byte
	offset int
}

func place(local byte, f fields.Field) address { return address{local, f.Offset} }

func headerField(name string) fields.Field {
	f, ok := fields.Find[abi.Header](name)
	if !ok {
		panic("score: the header has no " + name)
	}
	return f
}

func recordPlace(name string) address {
	f, ok := fields.Find[abi.Record](name)
	if !ok {
		panic("score: a record has no " + name)
	}
	return place(localRecord, f)
}

// load emits a load; the alignment hint 0 is always right.
func (c *compiler) load(op byte, a address) {
	c.emit(opLocalGet, a.local, op, 0)
	c.code = binary.AppendUvarint(c.code, uint64(a.offset))
}

// seconds emits the difference of two times.
func (c *compiler) seconds(later, sooner address) {
	c.load(opI64Load, later)
	c.load(opI64Load, sooner)
	c.emit(opI64Sub, opF64OfI64)
	c.number(1e9)
	c.emit(opF64Div)
}

// fieldOf emits a field's value.
func fieldOf(local byte, f fields.Field) func(c *compiler) {
	codes := map[reflect.Kind][2]byte{
		reflect.Uint8: {opI32Load8, opF64OfU32}, reflect.Uint16: {opI32Load16, opF64OfU32},
		reflect.Uint32: {opI32Load, opF64OfU32}, reflect.Int32: {opI32Load, opF64OfI32},
		reflect.Uint64: {opI64Load, opF64OfU64}, reflect.Int64: {opI64Load, opF64OfI64},
	}[f.Kind]
	return func(c *compiler) {
		c.load(codes[0], place(local, f))
		c.emit(codes[1])
	}
}
