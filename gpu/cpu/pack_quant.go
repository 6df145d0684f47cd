package cpu

import (
	"encoding/binary"

	"github.com/kvrelay/engine/gpu"
)

// A quantised panel is its integers, then its scales:
//
//	integers [cols/32][quantBytes]: of 32 steps of 16 rows, as groups of 4 steps [8][16][4],
//	  because the dot instructions take four neighbours at once. With 8 bits a group is 64 bytes.
//	  With fewer, four vectors of 64 bytes hold the lower four bits, those of groups 0 to 3 in
//	  the lower halves of the bytes, of groups 4 to 7 in the upper ones. Then follow the bits
//	  above: of 5-bit numbers one vector, bit g for group g; of 6-bit ones two, for groups 0 to 3
//	  and 4 to 7, two bits for each group, the first lowest.
//	scales [cols/length][scaleBytes], for 16 rows side by side: d, m if there is one, both f16;
//	  in formats of 256 then the scales' factors [8 or 16][16], the least values' factors [8][16].
//
// That is as much as the stored form takes, but for Q4_K and Q5_K, whose factors take eight bits
// here instead of six: 3 and 2 percent more.

// groupBytes is 4 steps of 16 rows in bytes.
const groupBytes = 4 * panelRows

// quantBytes is what the integers of 32 steps take.
func (f format) quantBytes() int { return f.bits * quantBlock * panelRows / 8 }

// scaleBytes is what the scales of one stored block of 16 rows take.
func scaleBytes(dtype gpu.DType) int {
	switch dtype {
	case gpu.Q4_1, gpu.Q5_1:
		return 4 * panelRows
	case gpu.Q4_K, gpu.Q5_K:
		return (4 + 8 + 8) * panelRows
	case gpu.Q6_K:
		return (2 + 16) * panelRows
	}
	return 2 * panelRows
}

// quantPanelBytes is a whole panel, a multiple of 64 so that vectors do not cross cache lines.
func quantPanelBytes(dtype gpu.DType, cols int) int {
	length, _ := dtype.Block()
	n := cols/quantBlock*formats[dtype].quantBytes() + cols/length*scaleBytes(dtype)
	return (n + 63) &^ 63
}

// scalesAt is the offset in a panel of the scales of stored block i.
func (m *packed) scalesAt(i int) int {
	return m.cols/quantBlock*formats[m.dtype].quantBytes() + i*scaleBytes(m.dtype)
}

// placeRow puts a stored row into a lane of a panel that is still zero there.
func (m *packed) placeRow(panel, lane int, data []byte) {
	length, bytes := m.dtype.Block()
	f, to := formats[m.dtype], m.memory.bytes[panel*m.panelBytes():][:m.panelBytes()]
	var s super
	for i := range m.cols / length {
		s.takeApart(m.dtype, data[i*bytes:][:bytes])
		for b := range length / quantBlock {
			at := (i*length/quantBlock + b) * f.quantBytes()
			f.place(to[at:][:f.quantBytes()], lane, s.q[b*quantBlock:][:quantBlock])
		}
		m.placeScales(to[m.scalesAt(i):], lane, &s)
	}
}

// place puts 32 integers of one row into their lane.
func (f format) place(to []byte, lane int, q []uint8) {
	for i, v := range q {
		group, in := i/4, lane*4+i%4
		if f.bits == 8 {
			to[group*groupBytes+in] = v
			continue
		}
		to[group%4*groupBytes+in] |= v & 15 << (group / 4 * 4)
		switch f.bits {
		case 5:
			to[4*groupBytes+in] |= v >> 4 << group
		case 6:
			to[(4+group/4)*groupBytes+in] |= v >> 4 << (group % 4 * 2)
		}
	}
}

// take is the inverse of place.
func (f format) take(q []uint8, from []byte, lane int) {
	for i := range q {
		group, in := i/4, lane*4+i%4
		if f.bits == 8 {
			q[i] = from[group*groupBytes+in]
			continue
		}
		q[i] = from[group%4*groupBytes+in] >> (group / 4 * 4) & 15
		switch f.bits {
		case 5:
			q[i] |= from[4*groupBytes+in] >> group & 1 << 4
		case 6:
			q[i] |= from[(4+group/4)*groupBytes+in] >> (group % 4 * 2) & 3 << 4
		}
	}
}

// placeScales puts the scales of one stored block into their lane.
func (m *packed) placeScales(to []byte, lane int, s *super) {
	binary.LittleEndian.PutUint16(to[2*lane:], s.d)
	scales, least := 0, 0
	switch m.dtype {
	case gpu.Q4_1, gpu.Q5_1:
		binary.LittleEndian.PutUint16(to[2*(panelRows+lane):], s.m)
	case gpu.Q4_K, gpu.Q5_K:
		binary.LittleEndian.PutUint16(to[2*(panelRows+lane):], s.m)
		scales, least = 8, 8
		to = to[4*panelRows:]
	case gpu.Q6_K:
		scales = 16
		to = to[2*panelRows:]
	}
	for i := range scales {
		to[i*panelRows+lane] = s.scale[i]
	}
	for i := range least {
		to[(scales+i)*panelRows+lane] = s.least[i]
	}
}

// takeScales is the inverse of placeScales.
func takeScales(s *super, dtype gpu.DType, from []byte, lane int) {
	s.d = binary.LittleEndian.Uint16(from[2*lane:])
	scales, least := 0, 0
	switch dtype {
	case gpu.Q4_1, gpu.Q5_1:
		s.m = binary.LittleEndian.Uint16(from[2*(panelRows+lane):])
	case gpu.Q4_K, gpu.Q5_K:
		s.m = binary.LittleEndian.Uint16(from[2*(panelRows+lane):])
		scales, least = 8, 8
		from = from[4*panelRows:]
	case gpu.Q6_K:
		scales = 16
		from = from[2*panelRows:]
	}
	for i := range scales {
		s.scale[i] = from[i*panelRows+lane]
	}
	for i := range least {
		s.least[i] = from[(scales+i)*panelRows+lane]
	}
}

// numbers writes the values of one row.
func (m *packed) numbers(dst []float32, row int) {
	length, _ := m.dtype.Block()
	f, lane := formats[m.dtype], row%panelRows
	from := m.memory.bytes[row/panelRows*m.panelBytes():][:m.panelBytes()]
	var s super
	for i := range m.cols / length {
		for b := range length / quantBlock {
			at := (i*length/quantBlock + b) * f.quantBytes()
			f.take(s.q[b*quantBlock:][:quantBlock], from[at:], lane)
		}
		takeScales(&s, m.dtype, from[m.scalesAt(i):], lane)
		for k := range length {
			dst[i*length+k] = s.number(m.dtype, k)
		}
	}
}
