// All kernels, as one file for the compiler that makes kernels.ptx.
#include "attend_any.cu"
#include "attend_fast.cu"
#include "kv.cu"
#include "rope.cu"
#include "rowwise.cu"
#include "sample.cu"
