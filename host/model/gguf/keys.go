package gguf

import (
	"fmt"
	"math"
)

// keys reads metadata. The first error stays and names its key; every later read gives the
// fallback.
type keys struct {
	file *File
	err  error
}

func (k *keys) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

func (k *keys) has(key string) bool {
	_, ok := k.file.values[key]
	return ok
}

// number reads a number of any width.
func (k *keys) number(key string, fallback float64) float64 {
	v, ok := k.file.values[key]
	if !ok {
		return fallback
	}
	x, ok := number(v.kind, v.raw)
	switch {
	case !ok:
		k.fail("%q is not a number", key)
	case math.IsNaN(x) || math.IsInf(x, 0):
		k.fail("%q is %v; a finite number is needed", key, x)
	default:
		return x
	}
	return fallback
}

// count reads a whole number of 1 to limit. Without a fallback (0) the key must be there. Where
// the value is an array, one number for each layer, all of them must be equal.
func (k *keys) count(key string, fallback, limit int) int {
	x := float64(fallback)
	if v := k.file.values[key]; v.kind == kindArray && v.n > 0 {
		list, err := v.numbers()
		if err != nil {
			k.fail("%q %w", key, err)
			return max(fallback, 1)
		}
		for _, y := range list {
			if y != list[0] {
				k.fail("%q differs from layer to layer, which is not supported", key)
			}
		}
		x = list[0]
	} else if x = k.number(key, x); !k.has(key) && fallback == 0 {
		k.fail("%q is missing", key)
	}
	if x != float64(int(x)) || x < 1 || x > float64(limit) {
		k.fail("%q is %v; it must be a whole number between 1 and %d", key, x, limit)
		return max(fallback, 1)
	}
	return int(x)
}

func (k *keys) text(key, fallback string) string {
	v, ok := k.file.values[key]
	if !ok {
		return fallback
	}
	if v.kind != kindString {
		k.fail("%q is not a string", key)
		return fallback
	}
	return string(v.raw)
}

func (k *keys) flag(key string, fallback bool) bool {
	v, ok := k.file.values[key]
	if !ok {
		return fallback
	}
	if v.kind != kindBool {
		k.fail("%q is neither true nor false", key)
		return fallback
	}
	return v.raw[0] == 1
}

// strings and numbers read an array; nil when it is not there.
func (k *keys) strings(key string) []string {
	v, ok := k.file.values[key]
	if !ok {
		return nil
	}
	list, err := v.strings()
	if err != nil {
		k.fail("%q %w", key, err)
	}
	return list
}

func (k *keys) numbers(key string) []float64 {
	v, ok := k.file.values[key]
	if !ok {
		return nil
	}
	list, err := v.numbers()
	if err != nil {
		k.fail("%q %w", key, err)
	}
	return list
}
