// Package cuda is the device for NVIDIA's GPUs: gpu.Device over package driver. Kernels are called
// one by one, but given to the device in whole steps by one thread of its own; weights and pages
// pass through pinned memory.
package cuda
