package plugins

import "time"

// OnFault is what decides while the policy is not trusted.
type OnFault string

// The ways to go on.
const (
	// Fallback lets the built-in policy decide.
	Fallback OnFault = "fallback"
	// Previous lets the module decide that was active before, and the built-in policy where there
	// is none or where it fails too.
	Previous OnFault = "previous"
	// StopAdmitting lets the built-in policy serve what is here, and takes nothing new.
	StopAdmitting OnFault = "stop_admitting"
)

// Rules is what happens when a module fails. A field of 0 or "" means its value in DefaultRules.
type Rules struct {
	OnFault OnFault
	// Faults within Window set a module aside: nobody asks it for Backoff, twice as long each time
	// after that, up to BackoffMax. Then it is on probation: it decides, is judged, and somebody
	// else acts, until CleanSteps steps went by without a fault.
	Faults     int
	Window     time.Duration
	Backoff    time.Duration
	BackoffMax time.Duration
	CleanSteps int
	// Slow is the time that 99 of 100 decisions should stay under, by the processor's time where
	// the system tells a thread's (Linux), by the wall elsewhere. Beyond it the class slow is
	// counted; calls that take ten times as long one after the other set the module aside.
	Slow time.Duration
	// Keep is how many entries of the history are kept to go back to.
	Keep int
}

// DefaultRules is the rules of the policy ABI, sections C.11 and C.13.
func DefaultRules() Rules {
	return Rules{
		OnFault: Fallback, Faults: 3, Window: time.Minute, Backoff: time.Second,
		BackoffMax: 5 * time.Minute, CleanSteps: 200, Slow: 300 * time.Microsecond, Keep: 10,
	}
}

// maxFaults bounds Rules.Faults: the times of so many are kept.
const maxFaults = 1000

func (r Rules) withDefaults() Rules {
	d := DefaultRules()
	for _, n := range []struct {
		value *int
		want  int
	}{{&r.Faults, d.Faults}, {&r.CleanSteps, d.CleanSteps}, {&r.Keep, d.Keep}} {
		if *n.value <= 0 {
			*n.value = n.want
		}
	}
	for _, t := range []struct {
		value *time.Duration
		want  time.Duration
	}{{&r.Window, d.Window}, {&r.Backoff, d.Backoff}, {&r.BackoffMax, d.BackoffMax},
		{&r.Slow, d.Slow}} {
		if *t.value <= 0 {
			*t.value = t.want
		}
	}
	if r.OnFault == "" {
		r.OnFault = d.OnFault
	}
	r.Faults = min(r.Faults, maxFaults)
	r.BackoffMax = max(r.BackoffMax, r.Backoff)
	return r
}
