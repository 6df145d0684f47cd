// Package drv loads the CUDA driver while the program runs and calls what gorgonia.org/cu lacks:
// pinned and registered host memory, large shared memory, launches by the list, host functions,
// graphs, memory shared between processes, and cuBLAS. Everything but this comment is behind the
// build tag cuda.
//
// Nothing of it needs the vendor's kit: ../include/cuda.h is ours, and every function of the driver
// is a jump through a pointer (stubs.c) that Load fills.
package drv
