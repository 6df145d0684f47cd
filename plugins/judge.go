package plugins

import (
	"fmt"

	"github.com/kvrelay/engine/abi"
)

// Judge checks an answer against the records as they were shown, of a module that was granted all
// that a host offers: the hard rules of the ABI. The engine's scheduler judges by the same rules;
// this is for trying modules without an engine.
func Judge(v *abi.View, out []abi.Decision) error {
	return new(abi.Judge).Check(v, out, abi.CapsOffered)
}

// JudgeCut checks the answer of a module that sets the chunk lengths of another one's answer, which
// is the view's preset and was judged: it is the preset with other chunk lengths and nothing else.
func JudgeCut(v *abi.View, out []abi.Decision) error { return judgeCut(new(abi.Judge), v, out) }

func judgeCut(j *abi.Judge, v *abi.View, out []abi.Decision) error {
	if len(out) != len(v.Preset) {
		return fmt.Errorf("%d decisions for %d whose chunk lengths were asked for", len(out),
			len(v.Preset))
	}
	for i, d := range out {
		want := v.Preset[i]
		if want.Action == abi.ActionRun {
			want.Tokens = d.Tokens
		}
		if d != want {
			return fmt.Errorf("decision %d, slot %d: more was changed than its chunk length", i,
				want.Slot)
		}
	}
	return j.Check(v, out, ^uint64(0)) // Its actions are the other one's, who was judged.
}
