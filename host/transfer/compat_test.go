package transfer

import "testing"

// TestMendNumerics: two classes of the cpu device differ by one setting or two, and each is said.
func TestMendNumerics(t *testing.T) {
	for _, c := range []struct{ here, there, want string }{
		{"fma", "fma-bf16", ` (set backend.activations = "bf16" here, or "f32" there)`},
		{"fma-bf16-int8", "fma-int8",
			` (set backend.activations = "int8" here, or "bf16" there)`},
		{"tdp", "fma-bf16", ` (set backend.numerics = "fma" here, or "tdp" there; ` +
			`set backend.activations = "bf16" here, or "f32" there)`},
		{"fma-bf16", "cuda-bf16", ""},
		{"fma-bf16", "fma-fp8", ""},
	} {
		if got := Mend("numerics", c.here, c.there); got != c.want {
			t.Errorf("here %s, there %s: %q, want %q", c.here, c.there, got, c.want)
		}
	}
}
