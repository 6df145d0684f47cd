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
	// Swapped follows every attempt to change what decides.
	Swapped(Swap)
	// LogDropped says that lines of a policy were not logged because there were too many.
	LogDropped(policy string, lines int)
}

// Call is one call of one module, or one step in which it was not asked.
type Call struct {
	Policy   string        // NAME@VERSION of the module, "" without one
	Cuts     bool          // it sets the chunk lengths of another's answer
	Fallback bool          // its answer is not used: it faulted, is on probation, or was not asked
	Wall     time.Duration // from the table's update to the answer's decoding; 0 if not asked
	Fuel     int64         // used by pol_decide
	FuelMax  int64         // what it might have used
	Memory   int64         // bytes of the guest's memory
	Breaker  Stage         // how far it is trusted afterwards; "" without a module
	Recovery Recovery      // what became of a fault; "" if nothing did
}

// Recovery is how a fault ended.
type Recovery string

// The ends of a fault.
const (
	Recovered Recovery = "recovered" // a fresh copy took over, or its probation is over
	Bypassed  Recovery = "bypassed"  // it is set aside
)

// SwapResult is how an attempt to change what decides ended.
type SwapResult string

// The results.
const (
	Activated  SwapResult = "activated"
	RolledBack SwapResult = "rolled_back"
	Refused    SwapResult = "refused" // the module did not load
)

// Swap is a change of what decides.
type Swap struct {
	Result SwapResult    `json:"result"`
	From   string        `json:"from"`     // NAME@VERSION, A+B for two modules, "" for none
	To     string        `json:"to"`       // likewise
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
