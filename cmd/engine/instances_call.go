package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kvrelay/engine/host/admin"
)

// callInstances changes the list, or only asks for it, and prints it. After drain it waits until
// the instance has nothing of the router's any more.
func callInstances(ctx context.Context, address adminTarget, change *admin.FleetChange, asJSON bool,
	s streams,
) error {
	c, err := address.dial()
	if err != nil {
		return err
	}
	var all admin.Instances
	if change == nil {
		err = c.call(ctx, "GET", "/instances", nil, &all)
	} else {
		err = c.call(ctx, "POST", "/instances", change, &all)
	}
	const every = 200 * time.Millisecond
	for err == nil && change != nil && change.Action == admin.FleetDrain && holds(all, *change) {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return ctx.Err()
		}
		err = c.call(ctx, "GET", "/instances", nil, &all)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(s.out).Encode(all)
	}
	printInstances(all, s)
	return nil
}

// holds reports whether the instance of a change still has something of the router's.
func holds(all admin.Instances, c admin.FleetChange) bool {
	for _, i := range all.Instances {
		if i.Name == c.Name && (c.Role == "" || i.Role == c.Role) && i.InFlight > 0 {
			return true
		}
	}
	return false
}

func printInstances(all admin.Instances, s streams) {
	fmt.Fprintf(s.out, "%-16s %-8s %-9s %9s %8s %8s  %s\n", "NAME", "ROLE", "STATE", "IN FLIGHT",
		"RUNNING", "WAITING", "URL")
	for _, i := range all.Instances {
		fmt.Fprintf(s.out, "%-16s %-8s %-9s %9d %8d %8d  %s\n", i.Name, i.Role, i.State,
			i.InFlight, i.Running, i.Waiting, i.URL)
		if i.Problem != "" {
			fmt.Fprintf(s.out, "%16s %s\n", "", i.Problem)
		}
	}
}
