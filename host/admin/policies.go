package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/kvrelay/engine/plugins"
)

// errNoPolicies: a router decides nothing.
var errNoPolicies = errors.New("this instance runs no policies: a router only forwards")

func (s *server) list(context.Context, []byte) ([]plugins.Status, error) {
	if s.options.Policies == nil {
		return nil, errNoPolicies
	}
	return s.options.Policies.List(), nil
}

// load brings a module in and, if asked, lets it decide from the next step on.
func (s *server) load(ctx context.Context, body []byte) (Loaded, error) {
	if s.options.Policies == nil {
		return Loaded{}, errNoPolicies
	}
	var ask LoadPolicy
	if err := json.Unmarshal(body, &ask); err != nil {
		return Loaded{}, errors.New("the request is not understood: " + err.Error())
	}
	spec := plugins.Spec{Name: ask.Name, Wasm: ask.Wasm, Limits: s.options.Limits,
		Reasons: ask.Reasons}
	if len(ask.Wasm) == 0 {
		var err error
		if spec, err = s.options.Named(ask.Name); err != nil {
			return Loaded{}, err
		}
	}
	if len(ask.Config) > 0 {
		spec.Config = ask.Config
	}
	if ask.Activate {
		spec.For = cmp.Or(ask.Part, plugins.PartWhole)
	}
	status, err := s.options.Policies.Load(ctx, spec)
	if err != nil {
		return Loaded{}, err
	}
	if !ask.Activate {
		return Loaded{Status: status}, nil
	}
	swap, err := s.activate(ask.Part, status.Name)
	if err != nil {
		return Loaded{}, err
	}
	return Loaded{Status: status, Swap: &swap}, nil
}

// rollback makes the policy before, or a named one, active.
func (s *server) rollback(ctx context.Context, body []byte) (plugins.Swap, error) {
	if s.options.Policies == nil {
		return plugins.Swap{}, errNoPolicies
	}
	var ask Rollback
	if err := json.Unmarshal(body, &ask); err != nil {
		return plugins.Swap{}, errors.New("the request is not understood: " + err.Error())
	}
	switch {
	case ask.Number > 0:
		return s.options.Policies.RollbackTo(ctx, ask.Number)
	case ask.To == "":
		return s.options.Policies.Rollback()
	}
	for _, past := range s.options.Policies.History() {
		if past.Policy == ask.To && strings.Contains(ask.To, "@") {
			return s.options.Policies.RollbackTo(ctx, past.Number)
		}
	}
	return s.activateNamed(ctx, ask.To)
}

// activateNamed activates what is loaded under a name, or what was the latest of that name to
// decide alone, or loads what the instance knows by it.
func (s *server) activateNamed(ctx context.Context, name string) (plugins.Swap, error) {
	swap, err := s.options.Policies.Activate(name)
	if err == nil {
		return swap, nil
	}
	for _, past := range s.options.Policies.History() {
		alone := len(past.Digests) == 1
		if alone && (past.Policy == name || strings.HasPrefix(past.Policy, name+"@")) {
			return s.options.Policies.RollbackTo(ctx, past.Number)
		}
	}
	spec, unknown := s.options.Named(name)
	if unknown != nil {
		return plugins.Swap{}, err
	}
	if _, err := s.options.Policies.Load(ctx, spec); err != nil {
		return plugins.Swap{}, err
	}
	return s.options.Policies.Activate(name)
}

// activate lets a loaded module decide everything, or one part.
func (s *server) activate(part plugins.Part, name string) (plugins.Swap, error) {
	if part == "" {
		return s.options.Policies.Activate(name)
	}
	return s.options.Policies.ActivatePart(part, name)
}

// unload forgets modules.
func (s *server) unload(_ context.Context, body []byte) (Unloaded, error) {
	if s.options.Policies == nil {
		return Unloaded{}, errNoPolicies
	}
	var ask Unload
	if err := json.Unmarshal(body, &ask); err != nil {
		return Unloaded{}, errors.New("the request is not understood: " + err.Error())
	}
	return Unloaded(ask), s.options.Policies.Unload(ask.Name)
}

// history tells what decided when.
func (s *server) history(context.Context, []byte) (History, error) {
	if s.options.Policies == nil {
		return History{}, errNoPolicies
	}
	return History{Entries: s.options.Policies.History()}, nil
}
