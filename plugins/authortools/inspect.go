package authortools

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins/lint"
)

// Fact is a line of what a module is.
type Fact struct{ Name, Text string }

// Inspect tells what a module is: its bytes, what it needs and gives, and how it describes itself.
// It
// runs no more of it than an engine does at load.
func Inspect(ctx context.Context, wasm, settings []byte) ([]Fact, error) {
	m, problems := lint.Check(wasm, lint.Default())
	if m == nil {
		return nil, fmt.Errorf("%s: %s (engine policy check tells all)", problems[0].Code,
			problems[0].Message)
	}
	w, err := bench(ctx, wasm, settings)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	d, name, version := w.About()
	facts := []Fact{
		{"name", name}, {"version", version},
		{"abi", fmt.Sprintf("%d.%d, runs on a host of %d.%d or later", abi.Major, d.Minor,
			abi.Major, d.OldestHostMinor)},
		{"sha256", fmt.Sprintf("%x", sha256.Sum256(wasm))},
		{"bytes", fmt.Sprint(len(wasm))},
		{"functions", fmt.Sprintf("%d, the largest of %d bytes, nesting %d", len(m.Functions),
			m.LargestBody, m.Deepest)},
		{"metering", fmt.Sprintf("adds %.0f %%", 100*w.Growth())},
		{"flags", flagNames(d.Flags)},
		{"requires", orNone(abi.CapNames(d.CapsRequired))},
		{"optional", orNone(abi.CapNames(d.CapsOptional))},
		{"granted", orNone(abi.CapNames(d.Granted(abi.CapsOffered)))},
		{"state", fmt.Sprintf("version %d", d.StateVersion)},
		{"reads", fmt.Sprintf("%d bytes of a header, %d of a record", d.HeaderBytes,
			d.RecordBytes)},
	}
	for _, i := range m.Imports {
		facts = append(facts, Fact{"import", fmt.Sprintf("%s.%s %s", i.Module, i.Name,
			m.Types[i.Type])})
	}
	for _, e := range m.Exports {
		text := e.Name
		if e.Kind == lint.ExportFunction {
			text += " " + m.TypeOf(e.Index).String()
		}
		facts = append(facts, Fact{"export", text})
	}
	return append(facts, Fact{"compile", w.Compile.String()},
		Fact{"instantiate", w.Instantiate.String()}), nil
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func flagNames(flags uint32) string {
	var names []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{abi.DescWantsChanged, "wants_changed"}, {abi.DescStateless, "stateless"},
		{abi.DescMayFill, "may_fill"}, {abi.DescNeedsTenants, "needs_tenants"},
		{abi.DescSelects, "selects"}, {abi.DescSetsChunks, "sets_chunks"},
	} {
		if flags&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return orNone(strings.Join(names, " "))
}
