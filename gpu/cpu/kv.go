package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// keyLanes is how many tokens of keys lie side by side, like the rows of a weight's panel, so that
// scores are computed by the kernels of MatMul.
const keyLanes = panelRows

// pool of pages in the device's layout:
//
//	keys   [layer][page][head][PageSize/keyLanes, rounded up][HeadDim][keyLanes]
//	values [layer][page][head][PageSize][HeadDim, rounded up to panelRows]
//
// What the rounding adds stays zero or is never looked at.
type kvPool struct {
	shape        gpu.KVShape
	groups       int // key groups of a page and head
	padded       int // HeadDim rounded up
	keys, values *memory
	k, v         []float32
}

func (kv *kvPool) Shape() gpu.KVShape { return kv.shape }

// AllocKV implements gpu.Memory.
func (d *Device) AllocKV(shape gpu.KVShape) (gpu.KV, error) {
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	kv := &kvPool{
		shape:  shape,
		groups: (shape.PageSize + keyLanes - 1) / keyLanes,
		padded: (shape.HeadDim + panelRows - 1) / panelRows * panelRows,
	}
	heads := shape.Layers * shape.Pages * shape.KVHeads
	kv.keys = newMemory(heads * kv.keyHead() * 4)
	kv.values = newMemory(heads * kv.valueHead() * 4)
	kv.k, kv.v = kv.keys.floats(), kv.values.floats()
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

// store puts one token's key and value of one head into a slot.
func (kv *kvPool) store(page, slot int, key, value []float32) {
	to := kv.k[kv.key(page, slot):]
	for d, x := range key {
		to[d*keyLanes] = x
	}
	copy(kv.v[kv.value(page, slot):], value)
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
	copy(kv.v[kv.value(to, 0):][:slots*kv.padded], kv.v[kv.value(from, 0):])
	for slot := 0; slot < slots; slot += keyLanes {
		count := min(keyLanes, slots-slot)
		dst, src := kv.k[kv.key(to, slot):], kv.k[kv.key(from, slot):]
		for d := range kv.shape.HeadDim {
			copy(dst[d*keyLanes:][:count], src[d*keyLanes:])
		}
	}
}

// PackKV implements gpu.Kernels.
func (d *Device) PackKV(pool gpu.KV, r gpu.KVRange, dst []byte) error {
	kv := pool.(*kvPool)
	if err := checkRange(kv.shape, r, dst); err != nil {
		return err
	}
	width, half := 4*kv.shape.HeadDim, len(dst)/2
	for head := range kv.shape.KVHeads {
		page := kv.page(r.Layer, r.Page, head)
		for i := range r.Count {
			at := (i*kv.shape.KVHeads + head) * width
			packKey(dst[at:at+width], kv.k[kv.key(page, r.First+i):])
			packValue(dst[half+at:half+at+width], kv.v[kv.value(page, r.First+i):])
		}
	}
	return nil
}

// UnpackKV implements gpu.Kernels.
func (d *Device) UnpackKV(pool gpu.KV, r gpu.KVRange, src []byte) error {
	kv := pool.(*kvPool)
	if err := checkRange(kv.shape, r, src); err != nil {
		return err
	}
	width, half := 4*kv.shape.HeadDim, len(src)/2
	for head := range kv.shape.KVHeads {
		page := kv.page(r.Layer, r.Page, head)
		for i := range r.Count {
			at := (i*kv.shape.KVHeads + head) * width
			unpackKey(kv.k[kv.key(page, r.First+i):], src[at:at+width])
			unpackValue(kv.v[kv.value(page, r.First+i):], src[half+at:half+at+width])
		}
	}
	return nil
}

// packKey gathers a key from its lane. The slices are cut so that the compiler sees every index.
func packKey(dst []byte, lane []float32) {
	for ; len(dst) >= 16 && len(lane) > 3*keyLanes; dst, lane = dst[16:], laneAfter(lane, 4) {
		putFloat(dst, lane[0])
		putFloat(dst[4:], lane[keyLanes])
		putFloat(dst[8:], lane[2*keyLanes])
		putFloat(dst[12:], lane[3*keyLanes])
	}
	for d := range len(dst) / 4 {
		putFloat(dst[4*d:], lane[d*keyLanes])
	}
}

// unpackKey is the inverse of packKey.
func unpackKey(lane []float32, src []byte) {
	for ; len(src) >= 16 && len(lane) > 3*keyLanes; src, lane = src[16:], laneAfter(lane, 4) {
		lane[0] = getFloat(src)
		lane[keyLanes] = getFloat(src[4:])
		lane[2*keyLanes] = getFloat(src[8:])
		lane[3*keyLanes] = getFloat(src[12:])
	}
	for d := range len(src) / 4 {
		lane[d*keyLanes] = getFloat(src[4*d:])
	}
}

// packValue copies a value, which lies in the pool as it travels: little-endian, as all numbers of
// this device.
func packValue(dst []byte, value []float32) { copy(dst, bytesOf(value[:len(dst)/4])) }

// unpackValue is the inverse of packValue.
func unpackValue(value []float32, src []byte) { copy(bytesOf(value[:len(src)/4]), src) }

func bytesOf(floats []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(floats))), 4*len(floats))
}

// laneAfter is the lane so many dimensions further, empty at the pool's end.
func laneAfter(lane []float32, dims int) []float32 { return lane[min(dims*keyLanes, len(lane)):] }

func putFloat(dst []byte, x float32) { binary.LittleEndian.PutUint32(dst, math.Float32bits(x)) }

func getFloat(src []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(src))
}

// keyPanel and valueRow are addresses for the tile kernels.
func (kv *kvPool) keyPanel(page, slot int) unsafe.Pointer {
	return address(kv.k, kv.key(page, slot))
}

func (kv *kvPool) valueRow(page, slot int) unsafe.Pointer {
	return address(kv.v, kv.value(page, slot))
}
