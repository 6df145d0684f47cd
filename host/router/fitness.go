package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// State is what an operator is shown of an instance.
type State string

// The states. An instance that is not up gets requests only where no other is left, or none.
const (
	StateUp       State = "up"
	StateStarting State = "starting" // It has not answered a check yet, or it loads its model.
	StateDraining State = "draining" // By the router's operator or its own.
	StateDown     State = "down"
	// StateSilent: it takes connections, or something on the way does, and answered nothing when it
	// was last asked. It gets requests until it has been silent for several checks.
	StateSilent State = "silent"
)

// silent says that an instance did not answer a check in time.
type silent struct{ after time.Duration }

func (s *silent) Error() string { return fmt.Sprintf("no answer in %v", s.after) }
func (s *silent) Unwrap() error { return context.DeadlineExceeded }

// misfit says why an instance cannot work with the others.
type misfit struct {
	with    openai.Instance
	because string
}

func (m *misfit) Error() string { return "it cannot work with " + m.with.Name + ": " + m.because }

// unfit says why whoever answers is nobody to place requests of a role on.
type unfit struct{ because string }

func (u *unfit) Error() string { return u.because }

// unusable reports whether an error says that an instance must not be placed on, as against that it
// does not answer now.
func unusable(err error) bool {
	_, odd := errors.AsType[*misfit](err)
	_, wrong := errors.AsType[*unfit](err)
	return odd || wrong
}

// serves refuses an instance whose role does not do what it is listed for.
func serves(role placement.Role, who openai.Instance) error {
	switch {
	case who.Role == "all", who.Role == role.String():
		return nil
	case who.Role == "":
		return &unfit{"it is no instance of this engine: it tells no role"}
	}
	return &unfit{fmt.Sprintf("its role is %.20s: it does not serve as a %s instance", who.Role,
		role)}
}

// stranger words the error of a check that no instance would give: it knows other URLs, or answers
// in another language. Any other error stays what it is.
func stranger(err error) error {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, types := errors.AsType[*json.UnmarshalTypeError](err)
	if syntax || types || foreign(err) {
		return &unfit{"it is no instance of this engine: " + err.Error()}
	}
	return err
}

// foreign reports whether a fault is of a kind that an instance has for no check: a router has.
func foreign(err error) bool {
	fault, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return false
	}
	switch fault.Code {
	case openai.CodeUnknownURL, openai.CodeMethodNotAllowed, openai.CodeNoHealthyDecode:
		return true
	}
	return false
}

// disown turns a refusal that is about the instance, not about what the client asked for, into an
// error that another instance may spare the client. One that the instance puts on the request is
// believed only of an instance that serves its role: it is asked.
func (r *Router) disown(ctx context.Context, at placement.Instance, err error) error {
	fault, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return err
	}
	switch fault.Code {
	case openai.CodeUnknownURL, openai.CodeMethodNotAllowed, openai.CodeModelNotFound,
		openai.CodeIncompatibleInstance, openai.CodeInvalidAPIKey, openai.CodeModelNotAllowed:
		r.lose(at.Role, at.Name, err)
		if found := r.look(ctx, at.Role, at.Name); unusable(found) {
			return found
		}
		return &unfit{"it refuses the router's call: " + fault.Message}
	case openai.CodeInvalidValue:
		if found := r.look(ctx, at.Role, at.Name); unusable(found) {
			return found
		}
	}
	return err
}

// note keeps why the latest check of an instance failed; nil ends that. It reports whether the
// instance is found not to be one to place on, as it was not before, or not for that reason: so
// much is worth a word although it was down already. The lock is held.
func (r *Router) note(key string, err error) (odd bool) {
	if errors.Is(err, context.Canceled) {
		return false // Whoever asked has gone.
	}
	if err == nil || !r.listed(key) {
		delete(r.refusals, key)
		return false
	}
	before := r.refusals[key]
	r.refusals[key] = err
	return unusable(err) && (before == nil || reason(before) != reason(err))
}

// listed reports whether there is an instance of that key. The lock is held.
func (r *Router) listed(key string) bool {
	return slices.ContainsFunc(r.pool.Snapshot(), func(i placement.Instance) bool {
		return instanceKey(i.Role, i.Name) == key
	})
}

// reason is an error without whom it was found to fit: any instance of a kind says the same of it.
func reason(err error) string {
	if odd, ok := errors.AsType[*misfit](err); ok {
		return odd.because
	}
	return err.Error()
}

// state words what is known of an instance. The lock is held.
func (r *Router) state(i placement.Instance) (State, string) {
	key := instanceKey(i.Role, i.Name)
	cause := r.refusals[key]
	if quiet, ok := errors.AsType[*silent](cause); ok {
		return StateSilent, quiet.Error()
	}
	if i.Up {
		if i.Draining {
			return StateDraining, ""
		}
		return StateUp, ""
	}
	if cause == nil {
		if _, met := r.known[key]; met {
			return StateDown, ""
		}
		return StateStarting, ""
	}
	if fault, ok := errors.AsType[*openai.Error](cause); ok {
		switch fault.Code {
		case openai.CodeDraining:
			return StateDraining, cause.Error()
		case openai.CodeModelLoading:
			return StateStarting, cause.Error()
		}
	}
	return StateDown, cause.Error()
}
