package main

import (
	"context"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/engine"
	"github.com/kvrelay/engine/host/scheduler"
)

// statePatience bounds the wait for an answer of the loop: a step may take long.
const statePatience = 2 * time.Second

// state says what the instance does now.
func (i *instance) state(ctx context.Context) admin.State {
	s := i.who
	s.Ready, s.Requests = i.ready.Load(), []admin.Request{}
	i.meter.read(&s)
	ctx, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	if i.router != nil {
		i.router.describe(ctx, &s)
		return s
	}
	s.Model, s.Policy = i.model.api.Names[0], i.policies.observer.name()
	now, err := i.engine.engine.State(ctx)
	if err != nil {
		return s // It is stopping.
	}
	in, pages := now.Stats.States, now.Stats
	s.Running = in[scheduler.Prefilling] + in[scheduler.Decoding]
	s.Waiting = in[scheduler.Waiting] + in[scheduler.Prepared] + in[scheduler.Receiving]
	s.Pages = admin.Pages{Free: pages.Free, Held: pages.Held,
		Cached: pages.Evictable + pages.Pinned, Quarantine: pages.Quarantined, Total: pages.Total,
		Leaked: now.Leaked}
	for _, r := range now.Requests {
		s.Requests = append(s.Requests, i.describeRequest(r))
	}
	return s
}

func (i *instance) describeRequest(r engine.RequestState) admin.Request {
	words := ""
	if r.Reason != 0 {
		words = i.policies.ReasonWords(r.Policy, r.Reason)
	}
	return admin.Request{
		ID: r.Label, Tenant: orDefault(r.Tenant), State: r.State.String(), Prompt: r.PromptTokens,
		Cached: r.Cached, Computed: r.Computed, Output: r.Generated, Pages: r.Pages,
		Age: r.Age.Seconds(), Priority: r.Priority, Preempted: r.Preempted, Reason: r.Reason,
		Words: words,
	}
}

// orDefault is the name of the tenant that nobody names.
func orDefault(tenant string) string {
	if tenant == "" {
		return "default"
	}
	return tenant
}

// page is the page at /ui, unless the configuration turns it off.
func (i *instance) page() *api.Page {
	if !i.cfg.API.UI {
		return nil
	}
	return &api.Page{State: func(ctx context.Context, sees func(string) bool) any {
		s := i.state(ctx)
		for n := range s.Requests {
			if r := &s.Requests[n]; !sees(r.Tenant) {
				r.ID, r.Tenant = "", "" // That it is there shows; whose it is does not.
			}
		}
		return s
	}}
}
