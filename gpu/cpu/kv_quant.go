package cpu

import (
	"encoding/binary"
	"unsafe"

	"github.com/kvrelay/engine/gpu"
)

// Keys and values in Q8_0: a block is 32 dimensions of one head, scale·q. The integers lie as other
// numbers do, a byte each. Their scales, f16, lie beside:
//
//	keyScales   [layer][page][head][PageSize/keyLanes, rounded up][HeadDim/32][keyLanes]
//	valueScales [layer][page][head][PageSize][HeadDim/32]
//
// Attention widens the keys and values of one block of positions once a task, to float32 that stay
// in the nearest caches, and goes on with those. Scale times integer is exact in float32.

// scaleSize is the bytes of a scale.
const scaleSize = 2

// seen is the type that the kernels of attention see, and the bytes of its numbers.
func (kv *kvPool) seen() (gpu.DType, int) {
	if kv.keyScales != nil {
		return gpu.F32, 4
	}
	return kv.shape.DType, kv.size
}

// blocks is how many blocks a head has.
func (kv *kvPool) blocks() int { return kv.shape.HeadDim / quantBlock }

// keyScale is the index of the scale of a key's first block; the next is keyLanes further.
func (kv *kvPool) keyScale(page, slot int) int {
	return (page*kv.groups+slot/keyLanes)*kv.blocks()*keyLanes + slot%keyLanes
}

// valueScale is the index of the scale of a value's first block.
func (kv *kvPool) valueScale(page, slot int) int {
	return (page*kv.shape.PageSize + slot) * kv.blocks()
}

// storeQuant is store for Q8_0.
func (j *ropeJob) storeQuant(to slot, key, value []float32, s *scratch) {
	kv := j.kv
	k, v := kv.key(to.page, to.slot), kv.value(to.page, to.slot)
	keyScales := numbers[uint16](kv.keyScales)[kv.keyScale(to.page, to.slot):]
	valueScales := numbers[uint16](kv.valueScales)[kv.valueScale(to.page, to.slot):]
	for d := 0; d < len(key); d += maxStored {
		n, block := min(maxStored, len(key)-d), d/quantBlock
		spread(kv.keys.bytes[k+d*keyLanes:], j.quantise(key[d:d+n], s))
		for b, meta := range s.metas[:n/quantBlock] {
			keyScales[(block+b)*keyLanes] = floatToHalf(meta.scale)
		}
		copy(kv.values.bytes[v+d:], j.quantise(value[d:d+n], s))
		for b, meta := range s.metas[:n/quantBlock] {
			valueScales[block+b] = floatToHalf(meta.scale)
		}
	}
}

// quantise gives the integers of some blocks, valid until the next call, and leaves their scales in
// s.metas.
func (j *ropeJob) quantise(x []float32, s *scratch) []byte {
	s.quantise = quantiseCall{blocks: len(x) / quantBlock, x: &x[0], q: &s.integers[0],
		meta: &s.metas[0]}
	j.micro.quant.quantise(&s.quantise)
	s.quantise = quantiseCall{}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s.integers)), len(x))
}

// copyScales is copyPage for scales.
func (kv *kvPool) copyScales(to, from, slots int) {
	scales := func(page int) []byte {
		return kv.valueScales.bytes[kv.valueScale(page, 0)*scaleSize:]
	}
	copy(scales(to)[:slots*kv.blocks()*scaleSize], scales(from))
	for slot := 0; slot < slots; slot += keyLanes {
		copyLanes(kv.keyScales.bytes[kv.keyScale(to, slot)*scaleSize:],
			kv.keyScales.bytes[kv.keyScale(from, slot)*scaleSize:],
			lanesOf{kv.blocks(), min(keyLanes, slots-slot), scaleSize})
	}
}

// packQuant is pack for Q8_0.
func (kv *kvPool) packQuant(from slot, key, value []byte) {
	k, v := kv.key(from.page, from.slot), kv.value(from.page, from.slot)
	keyScales := numbers[uint16](kv.keyScales)[kv.keyScale(from.page, from.slot):]
	valueScales := numbers[uint16](kv.valueScales)[kv.valueScale(from.page, from.slot):]
	_, size := gpu.Q8_0.Block()
	for b := range kv.blocks() {
		to, lane := key[b*size:][:size], kv.keys.bytes[k+b*quantBlock*keyLanes:]
		binary.LittleEndian.PutUint16(to, keyScales[b*keyLanes])
		for i := range to[scaleSize:] {
			to[scaleSize+i] = lane[i*keyLanes]
		}
		to = value[b*size:][:size]
		binary.LittleEndian.PutUint16(to, valueScales[b])
		copy(to[scaleSize:], kv.values.bytes[v+b*quantBlock:])
	}
}

// unpackQuant is the inverse of packQuant.
func (kv *kvPool) unpackQuant(to slot, key, value []byte) {
	k, v := kv.key(to.page, to.slot), kv.value(to.page, to.slot)
	keyScales := numbers[uint16](kv.keyScales)[kv.keyScale(to.page, to.slot):]
	valueScales := numbers[uint16](kv.valueScales)[kv.valueScale(to.page, to.slot):]
	_, size := gpu.Q8_0.Block()
	for b := range kv.blocks() {
		from := key[b*size:][:size]
		keyScales[b*keyLanes] = binary.LittleEndian.Uint16(from)
		spread(kv.keys.bytes[k+b*quantBlock*keyLanes:], from[scaleSize:])
		from = value[b*size:][:size]
		valueScales[b] = binary.LittleEndian.Uint16(from)
		copy(kv.values.bytes[v+b*quantBlock:], from[scaleSize:])
	}
}

// growWide makes room for the widened keys and values of a block of positions.
func (s *scratch) growWide(kv *kvPool) {
	if need := attentionBlock * kv.shape.HeadDim; len(s.wideValues) < need {
		s.wideValues = newMemory(4 * need).floats()
	}
	if need := kv.mostPanels() * kv.shape.HeadDim * keyLanes; len(s.wideKeys) < need {
		s.wideKeys = newMemory(4 * need).floats()
	}
}

// mostPanels is the most panels that the keys of a block of positions lie in. A block touches no
// more pages than if it began with the last slot of one, and has a ragged panel in each.
func (kv *kvPool) mostPanels() int {
	size := kv.shape.PageSize
	if attentionBlock%size == 0 && size%keyLanes == 0 {
		return attentionBlock / keyLanes
	}
	pages := (attentionBlock-2)/size + 2
	return min(attentionBlock, pages*min(kv.groups, attentionBlock/keyLanes+1))
}

// widenCall asks for float32 of blocks of Q8_0. asm/widen.go knows the offsets of the fields.
type widenCall struct {
	blocks int
	q      unsafe.Pointer // int8
	scales unsafe.Pointer // f16
	to     unsafe.Pointer
}

// widenKeys widens panels of keys and says where they are now.
func (j *attentionJob) widenKeys(s *scratch, panels []keyPanel) {
	size := j.kv.shape.HeadDim * keyLanes
	for i := range panels {
		p := &panels[i]
		s.widening = widenCall{blocks: j.kv.blocks(), q: p.address, scales: p.scales,
			to: address(s.wideKeys, i*size)}
		j.d.micro.widenPanel(&s.widening)
		p.address = s.widening.to
	}
}

// widenValues widens those of positions [first, last) of one block of positions. A page that is
// gone is left out.
func (j *attentionJob) widenValues(t *attentionTask, s *scratch, of span) {
	kv := j.kv
	for size, position := kv.shape.PageSize, of.first; position < of.last; {
		index, slot := position/size, position%size
		n := min(of.last-position, size-slot)
		if t.pages[index] >= 0 {
			page := kv.page(j.args.Layer, int(t.pages[index]), t.head)
			s.widening = widenCall{blocks: n * kv.blocks(), q: kv.valueRow(page, slot),
				scales: kv.valueScales.at(kv.valueScale(page, slot) * scaleSize),
				to:     address(s.wideValues, position%attentionBlock*kv.shape.HeadDim)}
			j.d.micro.widenRow(&s.widening)
		}
		position += n
	}
}

// widenPanel widens [blocks][32] steps of keyLanes integers with scales [blocks][keyLanes].
func widenPanel(c *widenCall) {
	for b := range c.blocks {
		scales := (*[keyLanes]uint16)(unsafe.Add(c.scales, b*keyLanes*scaleSize))
		for i := range quantBlock {
			step := b*quantBlock + i
			q := (*[keyLanes]int8)(unsafe.Add(c.q, step*keyLanes))
			to := (*[keyLanes]float32)(unsafe.Add(c.to, step*keyLanes*4))
			for lane, v := range q {
				to[lane] = float32(halfToFloat(scales[lane]) * float32(v))
			}
		}
	}
}

// widenRow widens [blocks][32] integers with scales [blocks].
func widenRow(c *widenCall) {
	for b := range c.blocks {
		scale := halfToFloat(*(*uint16)(unsafe.Add(c.scales, b*scaleSize)))
		q := (*[quantBlock]int8)(unsafe.Add(c.q, b*quantBlock))
		to := (*[quantBlock]float32)(unsafe.Add(c.to, b*quantBlock*4))
		for i, v := range q {
			to[i] = float32(scale * float32(v))
		}
	}
}
