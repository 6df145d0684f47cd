// Package placement decides which prefill and which decode instance a request gets, and how much of
// its prompt each computes, from what each last reported. It is pure: no clock, no network, no
// chance.
//
// What always holds:
//
//  1. The least loaded instance that is up, not draining and not excluded is taken; the first in
//     the list of equals.
//  2. An instance's in-flight count is the number of tickets that hold it.
//  3. An instance is down after DownAfter failed checks in a row, or at once when a check finds
//     nobody there, and up after one check that succeeds. One on which a request was lost is
//     suspect until then: it is taken only where no other is left.
package placement

import (
	"errors"
	"fmt"
)

// DownAfter is how many health checks in a row must fail before an instance is taken out.
const DownAfter = 3

// Errors of Place.
var (
	// ErrNoDecode says that no decode instance is up.
	ErrNoDecode = errors.New("no decode instance is up")
	// ErrTried says that the request has failed on every decode instance that is up.
	ErrTried = errors.New("the request has failed on every decode instance that is up")
)

// Role is what an instance is placed for.
type Role uint8

// The roles. One process may stand in both lists.
const (
	Prefill Role = iota
	Decode
	roles
)

func (r Role) String() string { return [...]string{"prefill", "decode"}[r] }

// Report is what an instance said at its last health check.
type Report struct {
	// Waiting and Running count its sequences, whoever sent them.
	Waiting, Running int
}

// Instance is one line of a snapshot. Up is false for suspects, too. Pending counts the prompt
// tokens that this pool's tickets still have it compute.
type Instance struct {
	Name     string
	Role     Role
	Up       bool
	Draining bool
	InFlight int
	Load     int
	Pending  int
}

// Pool holds what is known of all instances. It serves one caller at a time.
type Pool struct {
	lists [roles][]*instance
}

type instance struct {
	name     string
	failures int
	suspect  bool
	draining bool
	inFlight int
	pending  int
	// foreign is the load of the last report that did not come from this pool's own tickets:
	// counting those twice would prefer whoever was not asked lately.
	foreign int
}

func (i *instance) up() bool     { return i.failures < DownAfter }
func (i *instance) usable() bool { return i.up() && !i.draining }
func (i *instance) load() int    { return i.inFlight + i.foreign }

// New makes a pool of the named instances, in the file's order. All are up until checks fail.
func New(prefill, decode []string) (*Pool, error) {
	p := &Pool{}
	if err := p.Replace(prefill, decode); err != nil {
		return nil, err
	}
	return p, nil
}

// Replace takes another list of instances. Those that stay keep what is known of them, those that
// go are no longer placed; tickets that hold one may still release it. On an error nothing changes.
func (p *Pool) Replace(prefill, decode []string) error {
	var next [roles][]*instance
	for role, names := range [roles][]string{prefill, decode} {
		for _, name := range names {
			if find(next[role], name) != nil {
				return fmt.Errorf("two %s instances are named %q", Role(role), name)
			}
			i := find(p.lists[role], name)
			if i == nil {
				i = &instance{name: name}
			}
			next[role] = append(next[role], i)
		}
	}
	p.lists = next
	return nil
}

func find(list []*instance, name string) *instance {
	for _, i := range list {
		if i.name == name {
			return i
		}
	}
	return nil
}

// Healthy takes the answer of a health check that succeeded. It reports whether the instance was
// down until now. An unknown name is ignored: the list may have changed since the check began.
func (p *Pool) Healthy(role Role, name string, r Report) (cameUp bool) {
	i := find(p.lists[role], name)
	if i == nil {
		return false
	}
	cameUp = !i.up() || i.suspect
	i.failures, i.suspect = 0, false
	i.foreign = max(0, max(0, r.Waiting)+max(0, r.Running)-i.inFlight)
	return cameUp
}

// Failed counts a health check that failed. It reports whether the instance just went down.
func (p *Pool) Failed(role Role, name string) (wentDown bool) {
	return p.fail(role, name, 1)
}

// Gone takes an instance out because a check found nobody there, or one who is leaving. It reports
// whether the instance just went down.
func (p *Pool) Gone(role Role, name string) (wentDown bool) {
	return p.fail(role, name, DownAfter)
}

// Suspect notes that a request was lost on an instance: until a health check succeeds it is taken
// only where no other is left. It reports whether the instance just became suspect.
func (p *Pool) Suspect(role Role, name string) (became bool) {
	i := find(p.lists[role], name)
	if i == nil || i.suspect || !i.up() {
		return false
	}
	i.suspect = true
	return true
}

func (p *Pool) fail(role Role, name string, times int) (wentDown bool) {
	i := find(p.lists[role], name)
	if i == nil || !i.up() {
		return false
	}
	i.failures += times
	return !i.up()
}

// Drain lets an instance finish what it has and gives it nothing new, or ends that. It reports
// whether there is an instance of that name.
func (p *Pool) Drain(role Role, name string, draining bool) (known bool) {
	i := find(p.lists[role], name)
	if i == nil {
		return false
	}
	i.draining = draining
	return true
}

// Snapshot lists the instances, prefill first, in the list's order.
func (p *Pool) Snapshot() []Instance {
	var all []Instance
	for role, list := range p.lists {
		for _, i := range list {
			all = append(all, Instance{Name: i.name, Role: Role(role), Up: i.up() && !i.suspect,
				Draining: i.draining, InFlight: i.inFlight, Load: i.load(), Pending: i.pending})
		}
	}
	return all
}

// Ready reports whether Place could answer: at least one decode instance is up and takes requests.
func (p *Pool) Ready() bool { return least(p.lists[Decode], nil) != nil }
