package cpu

import "unsafe"

// sweep is one call of a sweeping kernel, which takes the micro set's tall rows through panels of b
// that lie side by side: for panel p, row r and lane j, c[r][16p+j] = init + Σ a[r][k]·b[k][j], a
// chain of FMAs with k ascending through the panel's stretches and then up the stairs. Distances
// are in bytes; asm/sweep.go knows the offsets of the fields.
type sweep struct {
	a   unsafe.Pointer // float32
	lda uintptr        // from row to row of a
	ldb uintptr        // from step to step of b

	// Panel p's stretches are count of the list, from p·along on. Its part of each lies p·across
	// behind the start.
	list   *stretch
	count  int // at least 1
	along  uintptr
	_      uintptr // where the part of panel 0 lies: 0
	across uintptr

	c     unsafe.Pointer // float32
	ldc   uintptr
	init  unsafe.Pointer // of panel 0, float32: c itself to accumulate, or zeros with ldi 0
	ldi   uintptr
	ahead uintptr // from panel to panel of init

	panels int // at least 1

	// Row first and those below it go on with the step of b where the first of the stairs begins,
	// row first+1 and those below it with that of the second, and so on. first is at least 1.
	stairs       *stretch
	first, steps int

	_ [5]uintptr // for the kernel's own use
}
