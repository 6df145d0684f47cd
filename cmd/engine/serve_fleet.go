package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/metrics"
	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/router"
)

// fleet lets the operator change who stands behind a router.
type fleet struct {
	front   *fronted
	metrics *metrics.Metrics
}

// Instances implements admin.Fleet.
func (f fleet) Instances(ctx context.Context) []admin.Instance {
	ctx, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	var s admin.State
	f.front.describe(ctx, &s)
	return s.Instances
}

// Change implements admin.Fleet.
func (f fleet) Change(ctx context.Context, c admin.FleetChange) error {
	if c.Action == admin.FleetJoin {
		role, err := fleetRole(c.Role)
		if err != nil {
			return err
		}
		if err := config.CheckInstance(c.Name, c.URL); err != nil {
			return err
		}
		return f.front.Join(ctx, role, router.Endpoint{Name: c.Name, URL: c.URL})
	}
	role, err := f.find(c)
	if err != nil {
		return err
	}
	switch c.Action {
	case admin.FleetDrain:
		return f.front.Drain(role, c.Name, true)
	case admin.FleetResume:
		return f.front.Drain(role, c.Name, false)
	}
	if err := f.front.Leave(role, c.Name); err != nil {
		return err
	}
	f.metrics.ForgetInstance(c.Name, role.String())
	return nil
}

func fleetRole(name string) (placement.Role, error) {
	switch name {
	case placement.Prefill.String():
		return placement.Prefill, nil
	case placement.Decode.String():
		return placement.Decode, nil
	}
	return 0, fmt.Errorf("role is %.40q; it must be prefill or decode", name)
}

// find says in which role an instance is meant.
func (f fleet) find(c admin.FleetChange) (placement.Role, error) {
	if c.Role != "" {
		return fleetRole(c.Role)
	}
	var names []string
	var found []placement.Role
	for _, p := range f.front.Router.Instances() {
		names = append(names, p.Name)
		if p.Name == c.Name {
			found = append(found, p.Role)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, fmt.Errorf("there is no instance named %.80q; there are: %s", c.Name,
			strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("%s is the name of a prefill and of a decode instance: say which role",
		c.Name)
}
