package cpu

import (
	"unsafe"

	"github.com/kvrelay/engine/gpu"
	"golang.org/x/sys/cpu"
)

// amxAsm are the kernels on tiles, with the assembly that makes their operands.
func amxAsm() *amxMicro {
	return &amxMicro{tiles: amxTiles, widen: amxWidenFast(), split: amxSplitFast}
}

// tileMicro is the set with tiles: nil where the machine has none, or they do not agree.
func tileMicro() *micro {
	m := fastMicro(AVX512)
	if m == nil || !hasTiles() {
		return nil
	}
	if m.name, m.tdp.amx = AMX, amxAsm(); !m.tdp.amx.agrees() {
		return nil
	}
	return m
}

// amxWidenFast gives the assembly whole stretches, and plain Go what is left of the last.
func amxWidenFast() (all [plainTypes]func(*tdpWiden)) {
	for dtype := range all {
		pairs := amxWideners[dtype]
		all[dtype] = func(c *tdpWiden) {
			whole, rest := c.n&^(tdpStep-1), *c
			if c.n = whole / 2; whole > 0 {
				pairs(c)
			}
			if rest.n -= whole; rest.n == 0 {
				return // there is nothing behind that an address could be of
			}
			rest.from = unsafe.Add(rest.from, whole*panelRows*gpu.DType(dtype).Bytes())
			rest.to = unsafe.Add(rest.to, whole/tdpStep*tileBytes)
			amxWidenGo(&rest, gpu.DType(dtype))
		}
	}
	return all
}

// amxSplitFast gives the assembly whole stretches, and plain Go what is left of the last.
func amxSplitFast(c *tdpSplit) {
	whole, rest := c.n&^(tdpStep-1), *c
	if c.n = whole; whole > 0 {
		amxSplitAVX512(c)
	}
	if rest.n -= whole; rest.n == 0 {
		return
	}
	rest.from = unsafe.Add(rest.from, 4*whole)
	rest.to = unsafe.Add(rest.to, whole/tdpStep*tileBytes)
	amxSplitGo(&rest)
}

// hasTiles says whether this process may use AMX: the processor has it for bfloat16, the system
// keeps its state, and grants it when asked. It must be asked before the first tile instruction,
// once for all threads.
func hasTiles() bool {
	const states = 1<<17 | 1<<18 // of XCR0: tile configuration, tile data
	x := &cpu.X86
	return x.HasAMXTile && x.HasAMXBF16 && x.HasOSXSAVE && readXCR0()&states == states &&
		askForTiles()
}
