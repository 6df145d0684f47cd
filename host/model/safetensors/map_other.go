//go:build !unix

package safetensors

import "os"

// mapFile reads the file: this system has no mapping in the standard library.
func mapFile(path string) ([]byte, func() error, error) {
	data, err := os.ReadFile(path)
	return data, func() error { return nil }, err
}
