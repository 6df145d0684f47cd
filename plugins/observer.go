package plugins

import "time"

// Observer hears what the host does, to count it. Its methods are called from the goroutine that
// caused them, Stepped from the engine's own: they must be quick, must not block, and Stepped must
// not allocate. They must not call the host: it waits for them.
type Observer interface {
	// Stepped follows every call of Decide.
	Stepped(Call)
	// Faulted follows every fault, of a load too.
	Faulted(*Fault)
	// Swapped follows every change of the active module.
	Swapped(Swap)
	// LogDropped says that lines of a policy were not logged because there were too many.
	LogDropped(policy string, lines int)
}

// Call is one call of Decide.
type Call struct {
	Policy   string        // NAME@VERSION of the active module, "" without one
	Fallback bool          // the module did not decide: it faulted, or was not asked
	Wall     time.Duration // from the table's update to the answer's decoding; 0 if not asked
	Fuel     int64         // used by pol_decide
	FuelMax  int64         // what it might have used
	Memory   int64         // bytes of the guest's memory
}

// Swap is a change of the active module.
type Swap struct {
	From   string        `json:"from"`     // NAME@VERSION, "" if there was none
	To     string        `json:"to"`       // NAME@VERSION
	Number uint64        `json:"number"`   // swaps of this host so far, this one included
	Step   uint64        `json:"step"`     // the last one decided before it, 0 if none was
	Pause  time.Duration `json:"pause_ns"` // for how long it kept the engine from deciding
	State  string        `json:"state"`    // what became of what the old module knew
}

// silent is the observer of a host that was given none.
type silent struct{}

func (silent) Stepped(Call)           {}
func (silent) Faulted(*Fault)         {}
func (silent) Swapped(Swap)           {}
func (silent) LogDropped(string, int) {}
