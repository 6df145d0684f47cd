package router

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvrelay/engine/host/placement"
)

// MaxInstances bounds the instances of one role.
const MaxInstances = 1024

// roster is who belongs to the fleet: the lists of the file, without those that left while the
// router runs, and those that joined.
type roster struct {
	listed, joined [2][]Endpoint // by placement.Role
	left           map[string]bool
}

// instanceKey names an instance among all.
func instanceKey(role placement.Role, name string) string { return role.String() + "/" + name }

// of lists a role's instances.
func (o *roster) of(role placement.Role) []Endpoint {
	var all []Endpoint
	for _, e := range o.listed[role] {
		if !o.left[instanceKey(role, e.Name)] {
			all = append(all, e)
		}
	}
	return append(all, o.joined[role]...)
}

// has reports whether a role has an instance of that name.
func (o *roster) has(role placement.Role, name string) bool {
	return slices.ContainsFunc(o.of(role), func(e Endpoint) bool { return e.Name == name })
}

// with is a copy that changes nothing of this one.
func (o *roster) with() *roster {
	next := &roster{listed: o.listed, left: maps.Clone(o.left)}
	for role, list := range o.joined {
		next.joined[role] = slices.Clone(list)
	}
	return next
}

// Replace takes other lists of instances, as the file has them. Requests that run where an instance
// was taken out run on there; new ones go to those in the lists, once they have answered. Whoever
// left is back if the file still names it; whoever joined stays, unless the file names it now. On
// an error nothing changes.
func (r *Router) Replace(prefill, decode []Endpoint) error {
	r.mu.Lock()
	next := &roster{listed: [2][]Endpoint{prefill, decode}, left: map[string]bool{}}
	for role, list := range r.roster.joined {
		for _, e := range list {
			if !next.has(placement.Role(role), e.Name) {
				next.joined[role] = append(next.joined[role], e)
			}
		}
	}
	return r.adopt(next)
}

// Join adds an instance and asks it who it is. It is placed on once it has answered; one that
// answers that it does not serve that role or cannot work with the others is not taken.
func (r *Router) Join(ctx context.Context, role placement.Role, e Endpoint) error {
	r.mu.Lock()
	next := r.roster.with()
	if next.has(role, e.Name) {
		r.mu.Unlock()
		return fmt.Errorf("a %s instance named %s is there already: it leaves first, or this "+
			"one needs another name", role, e.Name)
	}
	if len(next.of(role)) >= MaxInstances {
		r.mu.Unlock()
		return fmt.Errorf("there are %d %s instances already, which is the most", MaxInstances,
			role)
	}
	isListed := func(l Endpoint) bool { return l.Name == e.Name && l.URL == e.URL }
	if key := instanceKey(role, e.Name); slices.ContainsFunc(next.listed[role], isListed) {
		delete(next.left, key) // It is the file's own.
	} else {
		next.joined[role] = append(next.joined[role], e)
	}
	if err := r.adopt(next); err != nil {
		return err
	}
	refused := r.look(ctx, role, e.Name)
	if unusable(refused) {
		if err := r.Leave(role, e.Name); err != nil {
			return err
		}
		return fmt.Errorf("%s is not taken: %w", e.Name, refused)
	}
	return nil
}

// Leave takes an instance out: nothing new goes there, what runs there runs on.
func (r *Router) Leave(role placement.Role, name string) error {
	r.mu.Lock()
	next := r.roster.with()
	if !next.has(role, name) {
		r.mu.Unlock()
		return unknownInstance(role, name)
	}
	named := func(e Endpoint) bool { return e.Name == name }
	next.joined[role] = slices.DeleteFunc(next.joined[role], named)
	if slices.ContainsFunc(next.listed[role], named) {
		next.left[instanceKey(role, name)] = true
	}
	return r.adopt(next)
}

// Drain lets an instance finish what it has and places nothing new there, or ends that.
func (r *Router) Drain(role placement.Role, name string, draining bool) error {
	known := false
	r.settle(func(p *placement.Pool) { known = p.Drain(role, name, draining) })
	if !known {
		return unknownInstance(role, name)
	}
	r.hurry() // Instances of another kind may serve now.
	return nil
}

func unknownInstance(role placement.Role, name string) error {
	return fmt.Errorf("there is no %s instance named %s", role, name)
}

// adopt makes another roster the one in force, or changes nothing. It is called with the lock held
// and lets go of it.
func (r *Router) adopt(next *roster) error {
	prefill, decode := next.of(placement.Prefill), next.of(placement.Decode)
	if err := r.pool.Replace(names(prefill), names(decode)); err != nil {
		r.mu.Unlock()
		return fmt.Errorf("router instances: %w", err)
	}
	r.roster = next
	r.locate(placement.Prefill, prefill)
	r.locate(placement.Decode, decode)
	all := r.pool.Snapshot()
	r.mu.Unlock()
	r.options.Watch.Instances(all)
	r.hurry()
	return nil
}

// Absent lists who left although the file names it, by role/name.
func (r *Router) Absent() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.roster.left))
}

// locate notes where the instances of a role are, and forgets who is not among them any more. One
// that moved has to introduce itself again.
func (r *Router) locate(role placement.Role, list []Endpoint) {
	urls := make(map[string]string, len(list))
	for _, e := range list {
		urls[e.Name] = strings.TrimSuffix(e.URL, "/")
	}
	for name, url := range r.urls[role] {
		if urls[name] != url {
			delete(r.known, instanceKey(role, name))
			delete(r.speaks, instanceKey(role, name))
			delete(r.refusals, instanceKey(role, name))
		}
	}
	for name, url := range urls {
		if r.urls[role][name] != url {
			r.pool.Suspect(role, name) // Until it has answered.
		}
	}
	r.urls[role] = urls
}
