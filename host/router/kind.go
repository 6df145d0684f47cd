package router

import (
	"maps"
	"slices"
	"strings"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// leader is an instance of the kind that is used; a kind are those that can hand requests over to
// each other. It is the kind of most decode instances that answer and are not draining, of equals
// the one whose decode instance stands first in the list. A decode instance can compute alone, so
// that prefill instances have a say only where none answers: then the kind of the learned model
// stays while one of it is listed, and after that the first prefill instance's counts.
//
// The instance under key counts as one that answered who; "" is none. The lock is held.
func (r *Router) leader(key string, who openai.Instance) openai.Instance {
	all := r.pool.Snapshot()
	answered := func(i placement.Instance) (openai.Instance, bool) {
		k := instanceKey(i.Role, i.Name)
		if k == key {
			return who, true
		}
		return r.known[k], r.speaks[k]
	}
	decodes := map[string]int{}
	counts := func(i placement.Instance) (openai.Instance, bool) {
		it, speaks := answered(i)
		return it, speaks && i.Role == placement.Decode && !i.Draining
	}
	for _, i := range all {
		if it, ok := counts(i); ok {
			decodes[it.Compat]++
		}
	}
	var best openai.Instance
	most := 0
	for _, i := range all {
		if it, ok := counts(i); ok && decodes[it.Compat] > most {
			best, most = it, decodes[it.Compat]
		}
	}
	if most > 0 {
		return best
	}
	for _, i := range all {
		it, ok := r.known[instanceKey(i.Role, i.Name)]
		if r.model != nil && ok && it.Compat == r.model.Instance.Compat {
			return r.model.Instance
		}
	}
	for _, i := range all {
		if it, ok := answered(i); ok {
			return it
		}
	}
	return best
}

// fits refuses an instance that could not hand requests over to those in use. The lock is held.
func (r *Router) fits(key string, who openai.Instance) error {
	if lead := r.leader(key, who); lead.Compat != who.Compat {
		return &misfit{lead, r.differences(who, lead)}
	}
	return nil
}

// aside is an instance that another one's check has shown not to fit.
type aside struct {
	placement.Instance
	because error
}

// align takes out whoever is placed on and does not fit the kind that is used now, and has all
// instances asked at once when that is another kind than before. Until somebody has told its model
// the kind of before is used on. The lock is held.
func (r *Router) align() (out []aside) {
	lead := r.leader("", openai.Instance{})
	if lead.Compat != r.led {
		r.led = lead.Compat
		r.hurry()
	}
	if r.model == nil || r.model.Instance.Compat != lead.Compat {
		return nil
	}
	for _, i := range r.pool.Snapshot() {
		key := instanceKey(i.Role, i.Name)
		if !r.speaks[key] || r.known[key].Compat == lead.Compat || !r.pool.Gone(i.Role, i.Name) {
			continue
		}
		because := &misfit{lead, r.differences(r.known[key], lead)}
		if r.note(key, because) {
			out = append(out, aside{i, because})
		}
	}
	return out
}

// hurry has Run ask the instances now.
func (r *Router) hurry() {
	select {
	case r.changed <- struct{}{}:
	default: // Run has been told already.
	}
}

// tellAside logs who was taken out by align.
func (r *Router) tellAside(out []aside) {
	for _, a := range out {
		r.options.Log.Warn("instance is not used", "instance", a.Name, "role", a.Role.String(),
			"error", a.because)
	}
}

// differences names what two instances do not have in common, and what mends it.
func (r *Router) differences(a, b openai.Instance) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(a.Parts)) {
		if here, there := a.Parts[key], b.Parts[key]; here != there {
			list = append(list, key+" is "+here+" here and "+there+" there"+
				r.options.Mend(key, here, there))
		}
	}
	if len(list) == 0 {
		return "their compatibility digests differ"
	}
	return strings.Join(list, "; ")
}
