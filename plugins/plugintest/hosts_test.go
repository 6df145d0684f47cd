package plugintest

import (
	"errors"
	"testing"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/plugins"
)

// ours is plugins.Host as the kit tries it, with the judge that an engine's scheduler has.
type ours struct {
	*plugins.Host
	judge abi.Judge
}

// judged is an answer that the judge refused.
type judged struct{ error }

func (o *ours) Load(t *testing.T, name string, wasm []byte) error {
	spec := plugins.Spec{Name: name, Wasm: wasm, Limits: plugins.Limits{InitFuel: 20_000_000}}
	if _, err := o.Host.Load(t.Context(), spec); err != nil {
		return err
	}
	_, err := o.Activate(name)
	return err
}

func (o *ours) Decide(v *abi.View) ([]abi.Decision, error) {
	out, err := o.Host.Decide(v, nil)
	if err != nil {
		return nil, err
	}
	_, granted, _ := o.Answered()
	if err := o.judge.Check(v, out, granted); err != nil {
		o.ReportFault(abi.FaultBadOutput, err.Error())
		return nil, judged{err}
	}
	return out, nil
}

func (o *ours) Class(err error) abi.FaultClass {
	if f, ok := errors.AsType[*plugins.Fault](err); ok {
		return f.Class
	}
	if errors.As(err, &judged{}) {
		return abi.FaultBadOutput
	}
	return ""
}

// TestOurHost tries the engine's own host.
func TestOurHost(t *testing.T) {
	RunHost(t, func(t *testing.T) Host {
		h, err := plugins.New(plugins.Options{Slots: HostSlots, Decisions: HostDecisions})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return &ours{Host: h}
	})
}
