package pol

import (
	"cmp"
	"slices"

	"github.com/kvrelay/engine/abi"
)

// Key orders requests: by First, then Second, then ID, all ascending. IDs are unique, so that no
// two keys are equal.
type Key struct {
	First, Second int64
	ID            uint64
}

// Compare orders two keys.
func (k Key) Compare(o Key) int {
	if k.First != o.First {
		return cmp.Compare(k.First, o.First)
	}
	if k.Second != o.Second {
		return cmp.Compare(k.Second, o.Second)
	}
	return cmp.Compare(k.ID, o.ID)
}

// Order keeps slots in order from step to step: a step costs what changed, not what waits.
//
// Keys must depend on the record alone, not on the time. A request that ages at the same rate as
// all others keeps its place, so put the arrival into the key.
type Order struct {
	slots []uint32 // In order.
	keys  []Key    // By slot, of those that are in.
	in    []bool   // By slot.
	moved []uint32 // Slots that leave, enter or change place.
}

// few moves, and one more for each 128 slots in the order, are done one by one: each costs a search
// and half a copy of the list. More are sorted and merged in a walk along all of it.
const few = 16

// NewOrder makes an order for a table of that many slots.
func NewOrder(slots int) *Order {
	return &Order{
		slots: make([]uint32, 0, slots),
		keys:  make([]Key, slots),
		in:    make([]bool, slots),
		moved: make([]uint32, 0, slots),
	}
}

// Slots are the slots in order, until the next Update.
func (o *Order) Slots() []uint32 { return o.slots }

// Update follows the changed list; once a step, first thing. place gives a record's key, and false
// when it does not belong into the order.
func (o *Order) Update(v *abi.View, place func(*abi.Record) (Key, bool)) error {
	if v.Header.Flags&abi.FlagResync != 0 {
		clear(o.in)
		o.slots = o.slots[:0]
	}
	o.moved = o.moved[:0]
	for _, slot := range v.Changed {
		if int(slot) >= len(o.in) || int(slot) >= len(v.Records) {
			return &Error{abi.CodeBadArgument, "the changed list names a slot beyond the table"}
		}
		key, in := place(&v.Records[slot])
		if in != o.in[slot] || in && key != o.keys[slot] {
			o.moved = append(o.moved, slot)
		}
	}
	if len(o.moved) > few+len(o.slots)/128 {
		o.many(v, place)
		return nil
	}
	for _, slot := range o.moved {
		key, in := place(&v.Records[slot])
		o.one(slot, key, in)
	}
	return nil
}

// Find is the first place in Slots whose key is not before key: where a part of the order begins.
func (o *Order) Find(key Key) int {
	low, high := 0, len(o.slots)
	for low < high {
		mid := int(uint(low+high) / 2)
		if o.keys[o.slots[mid]].Compare(key) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// one gives a slot its new place.
func (o *Order) one(slot uint32, key Key, in bool) {
	if o.in[slot] {
		at := o.Find(o.keys[slot])
		o.slots = append(o.slots[:at], o.slots[at+1:]...)
	}
	o.in[slot] = in
	if in {
		o.keys[slot] = key
		o.slots = slices.Insert(o.slots, o.Find(key), slot)
	}
}

// many drops all that moved, sorts those that stay in, and merges them from the back.
func (o *Order) many(v *abi.View, place func(*abi.Record) (Key, bool)) {
	for _, slot := range o.moved {
		o.in[slot] = false
	}
	kept := o.slots[:0]
	for _, slot := range o.slots {
		if o.in[slot] {
			kept = append(kept, slot)
		}
	}
	added := o.moved[:0]
	for _, slot := range o.moved {
		if o.keys[slot], o.in[slot] = place(&v.Records[slot]); o.in[slot] {
			added = append(added, slot)
		}
	}
	slices.SortFunc(added, func(a, b uint32) int { return o.keys[a].Compare(o.keys[b]) })
	o.slots = o.slots[:len(kept)+len(added)]
	for end := len(o.slots) - 1; len(added) > 0; end-- {
		last := added[len(added)-1]
		if n := len(kept) - 1; n >= 0 && o.keys[last].Compare(o.keys[kept[n]]) < 0 {
			o.slots[end], kept = kept[n], kept[:n]
			continue
		}
		o.slots[end], added = last, added[:len(added)-1]
	}
}
