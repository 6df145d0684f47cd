package main

import (
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/transfer"
)

// TestPartsAreMended: each part that settings make equal is told with them, a draft's as well.
func TestPartsAreMended(t *testing.T) {
	here := transfer.Compat{Numerics: "fma", DType: "f32"}
	there := transfer.Compat{Numerics: "tdp", DType: "bf16"}
	a := parts([]transfer.Compat{here, here})
	b := parts([]transfer.Compat{there, there})
	mended := 0
	for part := range a {
		if a[part] == b[part] {
			continue
		}
		mended++
		text := mendPart(part, a[part], b[part])
		if !strings.Contains(text, "set backend.numerics = \"tdp\" here, or \"fma\" there") &&
			!strings.Contains(text, "set kv_cache.dtype = \"bf16\" here, or \"f32\" there") {
			t.Errorf("%s: %q", part, text)
		}
	}
	if mended != 4 {
		t.Errorf("%d parts differ, not 4", mended)
	}
	if text := mendPart("page_size", "16", "32"); text != "" {
		t.Errorf("page_size: %q", text)
	}
}
