package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// keyLanes is how many tokens of keys lie side by side, like the rows of a weight's panel, so that
// scores are computed by the kernels of MatMul.
const keyLanes = panelRows

// pool of pages in the device's layout, in the numbers of the shape's type:
//
//	keys   [layer][page][head][PageSize/keyLanes, rounded up][HeadDim][keyLanes]
//	values [layer][page][head][PageSize][HeadDim, rounded up to panelRows]
//
// What the rounding adds stays zero or is never looked at. In Q8_0 these are the integers;
// kv_quant.go says where their scales lie.
type kvPool struct {
	shape        gpu.KVShape
	size         int // bytes of a number
	groups       int // key groups of a page and head
	padded       int // HeadDim rounded up
	keys, values *memory

	keyScales, valueScales *memory // nil but in Q8_0
}

func (kv *kvPool) Shape() gpu.KVShape { return kv.shape }

// AllocKV implements gpu.Memory.
func (d *Device) AllocKV(shape gpu.KVShape) (gpu.KV, error) {
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	kv := &kvPool{
		shape:  shape,
		size:   shape.DType.Bytes(),
		groups: (shape.PageSize + keyLanes - 1) / keyLanes,
		padded: (shape.HeadDim + panelRows - 1) / panelRows * panelRows,
	}
	heads := shape.Layers * shape.Pages * shape.KVHeads
	if shape.DType.Quantised() {
		kv.size = 1
		kv.keyScales = newMemory(heads * kv.keyHead() / quantBlock * scaleSize)
		kv.valueScales = newMemory(heads * kv.valueHead() / quantBlock * scaleSize)
	}
	kv.keys = newMemory(heads * kv.keyHead() * kv.size)
	kv.values = newMemory(heads * kv.valueHead() * kv.size)
	return kv, nil
}

// keyHead and valueHead are the elements of one head's part of a page.
func (kv *kvPool) keyHead() int   { return kv.groups * kv.shape.HeadDim * keyLanes }
func (kv *kvPool) valueHead() int { return kv.shape.PageSize * kv.padded }

// page counts (layer, page, head) through the pool.
func (kv *kvPool) page(layer, page, head int) int {
	return (layer*kv.shape.Pages+page)*kv.shape.KVHeads + head
}

// key is the index of dimension 0 of the key in a slot; the next dimension is keyLanes further.
func (kv *kvPool) key(page, slot int) int {
	return page*kv.keyHead() + slot/keyLanes*kv.shape.HeadDim*keyLanes + slot%keyLanes
}

// value is the index of dimension 0 of the value in a slot.
func (kv *kvPool) value(page, slot int) int { return page*kv.valueHead() + slot*kv.padded }

// maxStored is how many numbers of a key are rounded at once.
const maxStored = 256

// store puts one token's key and value of one head into a slot. Numbers of fewer than four bytes
// are made in s.
func (j *ropeJob) store(to slot, key, value []float32, s *scratch) {
	kv := j.kv
	k, v := kv.key(to.page, to.slot), kv.value(to.page, to.slot)
	switch kv.size {
	case 4:
		spread(numbers[uint32](kv.keys)[k:], bitsOf(key))
		copy(numbers[uint32](kv.values)[v:], bitsOf(value))
		return
	case 1:
		j.storeQuant(to, key, value, s)
		return
	}
	narrow := j.micro.narrow[kv.shape.DType]
	for d := 0; d < len(key); d += maxStored {
		short := s.stored[:min(maxStored, len(key)-d)]
		narrow(short, key[d:])
		spread(numbers[uint16](kv.keys)[k+d*keyLanes:], short)
	}
	narrow(numbers[uint16](kv.values)[v:][:len(value)], value)
}

// slot is one token's place in one head's part of a page.
type slot struct{ page, slot int }

// spread writes a key to its lane.
func spread[T uint8 | uint16 | uint32](lane, key []T) {
	for d, x := range key {
		lane[d*keyLanes] = x
	}
}

// bitsOf views floats as their bits.
func bitsOf(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// CopyKV implements gpu.Kernels.
func (d *Device) CopyKV(pool gpu.KV, copies []gpu.KVCopy) error {
	kv := pool.(*kvPool)
	if err := checkCopies(kv.shape, copies); err != nil {
		return err
	}
	for _, c := range copies {
		for layer := range kv.shape.Layers {
			for head := range kv.shape.KVHeads {
				from := kv.page(layer, int(c.From), head)
				kv.copyPage(kv.page(layer, int(c.To), head), from, c.Tokens)
			}
		}
	}
	return nil
}

// copyPage copies the first slots of one head's part of a page and touches no others.
func (kv *kvPool) copyPage(to, from, slots int) {
	values := func(page int) []byte { return kv.values.bytes[kv.value(page, 0)*kv.size:] }
	copy(values(to)[:slots*kv.padded*kv.size], values(from))
	for slot := 0; slot < slots; slot += keyLanes {
		copyLanes(kv.keys.bytes[kv.key(to, slot)*kv.size:],
			kv.keys.bytes[kv.key(from, slot)*kv.size:],
			lanesOf{kv.shape.HeadDim, min(keyLanes, slots-slot), kv.size})
	}
	if kv.keyScales != nil {
		kv.copyScales(to, from, slots)
	}
}

// lanesOf are the first lanes of some steps of a group, numbers of so many bytes.
type lanesOf struct{ steps, lanes, size int }

// copyLanes copies those and touches no others.
func copyLanes(dst, src []byte, n lanesOf) {
	step, count := keyLanes*n.size, n.lanes*n.size
	for i := range n.steps {
		copy(dst[i*step:][:count], src[i*step:])
	}
}

// SlotsApart says that a slot may be packed while kernels append to others of its page and read it:
// no two slots share an element, and a kernel that was called has ended when it returns.
func (d *Device) SlotsApart() bool { return true }

// PackKV implements gpu.Kernels.
func (d *Device) PackKV(pool gpu.KV, r gpu.KVRange, dst []byte) error {
	kv := pool.(*kvPool)
	if err := checkRange(kv.shape, r, dst); err != nil {
		return err
	}
	width, half := kv.shape.DType.RowBytes(kv.shape.HeadDim), len(dst)/2
	for head := range kv.shape.KVHeads {
		page := kv.page(r.Layer, r.Page, head)
		for i := range r.Count {
			at := (i*kv.shape.KVHeads + head) * width
			kv.pack(slot{page, r.First + i}, dst[at:at+width], dst[half+at:half+at+width])
		}
	}
	return nil
}

// pack writes one head's key and value of a slot.
func (kv *kvPool) pack(from slot, key, value []byte) {
	k, v := kv.key(from.page, from.slot), kv.value(from.page, from.slot)
	switch kv.size {
	case 4:
		packKey(key, numbers[uint32](kv.keys)[k:])
	case 2:
		packKey(key, numbers[uint16](kv.keys)[k:])
	case 1:
		kv.packQuant(from, key, value)
		return
	}
	copy(value, kv.values.bytes[v*kv.size:])
}

// UnpackKV implements gpu.Kernels.
func (d *Device) UnpackKV(pool gpu.KV, r gpu.KVRange, src []byte) error {
	kv := pool.(*kvPool)
	if err := checkRange(kv.shape, r, src); err != nil {
		return err
	}
	width, half := kv.shape.DType.RowBytes(kv.shape.HeadDim), len(src)/2
	for head := range kv.shape.KVHeads {
		page := kv.page(r.Layer, r.Page, head)
		for i := range r.Count {
			at := (i*kv.shape.KVHeads + head) * width
			kv.unpack(slot{page, r.First + i}, src[at:at+width], src[half+at:half+at+width])
		}
	}
	return nil
}

// unpack is the inverse of pack.
func (kv *kvPool) unpack(to slot, key, value []byte) {
	k, v := kv.key(to.page, to.slot), kv.value(to.page, to.slot)
	switch kv.size {
	case 4:
		unpackKey(numbers[uint32](kv.keys)[k:], key)
	case 2:
		unpackKey(numbers[uint16](kv.keys)[k:], key)
	case 1:
		kv.unpackQuant(to, key, value)
		return
	}
	copy(kv.values.bytes[v*kv.size:], value)
}

// packKey gathers a key from its lane; the bytes of dst, of any alignment, are numbers as this
// device has them: little-endian. The slices are cut so that the compiler sees every index.
func packKey[T uint16 | uint32](dst []byte, lane []T) {
	to := viewed[T](dst)
	for ; len(to) >= 4 && len(lane) > 3*keyLanes; to, lane = to[4:], laneAfter(lane, 4) {
		to[0], to[1] = lane[0], lane[keyLanes]
		to[2], to[3] = lane[2*keyLanes], lane[3*keyLanes]
	}
	for d := range to {
		to[d] = lane[d*keyLanes]
	}
}

// unpackKey is the inverse of packKey.
func unpackKey[T uint16 | uint32](lane []T, src []byte) {
	from := viewed[T](src)
	for ; len(from) >= 4 && len(lane) > 3*keyLanes; from, lane = from[4:], laneAfter(lane, 4) {
		lane[0], lane[keyLanes] = from[0], from[1]
		lane[2*keyLanes], lane[3*keyLanes] = from[2], from[3]
	}
	for d, x := range from {
		lane[d*keyLanes] = x
	}
}

func viewed[T uint16 | uint32](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}

// laneAfter is the lane so many dimensions further, empty at the pool's end.
func laneAfter[T uint16 | uint32](lane []T, dims int) []T {
	return lane[min(dims*keyLanes, len(lane)):]
}

// keyPanel and valueRow are addresses for the tile kernels.
func (kv *kvPool) keyPanel(page, slot int) unsafe.Pointer {
	return kv.keys.at(kv.key(page, slot) * kv.size)
}

func (kv *kvPool) valueRow(page, slot int) unsafe.Pointer {
	return kv.values.at(kv.value(page, slot) * kv.size)
}
