// Package safetensors reads weight files in the safetensors format: an 8-byte little-endian header
// length, a JSON header that names tensors, their types, shapes and byte ranges, then the bytes.
// Input is taken as hostile: it allocates no more than the file's own size justifies, and each
// fault is one clear error.
package safetensors
