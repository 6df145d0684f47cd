package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/kvrelay/engine/host/api"
	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
	"github.com/kvrelay/engine/host/router"
)

// openRouter serves the API in front of other instances.
func (i *instance) openRouter(ctx context.Context) error {
	c := i.cfg.Router
	watch := &routerWatch{metrics: i.metrics, ready: func() bool { return false }}
	r, err := router.New(router.Options{
		Prefill: endpoints(c.Prefill), Decode: endpoints(c.Decode), Retries: c.Retries,
		ConnectTimeout: c.ConnectTimeout, HealthInterval: c.HealthInterval,
		FailLost: i.cfg.Transfer.OnFailure == "error",
		Balance: placement.Balance{Share: c.PDBalance.Value, Auto: !c.PDBalance.Set,
			MinRemote: c.MinRemoteTokens},
		Mend:  mendPart,
		Watch: watch, Log: i.log, Tracer: i.traces.tracer, Ring: i.traces.ring,
	})
	if err != nil {
		return err
	}
	watch.ready = func() bool { return i.ready.Load() && r.Ready() == nil }
	checks, stop := context.WithCancel(context.WithoutCancel(ctx)) // Also while it drains.
	go r.Run(checks)
	models := &routerModels{cfg: i.cfg, router: r}
	i.router = newFronted(r, models)
	i.router.stop = stop
	i.front = i.server(api.Options{Model: models.get, Source: r, Ready: r.Ready,
		Identity: func() openai.Instance {
			return openai.Instance{Name: i.who.Node, Role: string(config.RoleRouter)}
		}})
	listener, _, err := i.servers.listenInternal(i.cfg.Listen.Internal)
	if err != nil {
		return err
	}
	if listener != nil {
		i.servers.serve(listener, i.front, i.front.Health())
	}
	return i.openAPI(i.front)
}

func endpoints(list []config.Instance) []router.Endpoint {
	out := make([]router.Endpoint, len(list))
	for i, instance := range list {
		out[i] = router.Endpoint{Name: instance.Name, URL: instance.URL}
	}
	return out
}

// routerModels makes the API's model from what the router's instances told, once for each model.
type routerModels struct {
	cfg    *config.Config
	router *router.Router

	mu   sync.Mutex
	from *router.Model
	made *api.Model
}

// get returns the model that the instances serve now.
func (m *routerModels) get() (*api.Model, *openai.Error) {
	from, fault := m.router.Model()
	if fault != nil {
		return nil, fault
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.from == from {
		return m.made, nil
	}
	who := from.Instance
	made := &api.Model{Names: who.Models, Context: who.Context, Created: from.Met,
		Fingerprint: who.Fingerprint, Hidden: who.Hidden, Tokenizer: from.Tokenizer,
		Defaults:   who.Defaults,
		ToolParser: m.cfg.Model.ToolParser, Files: from.Files}
	if len(m.cfg.Model.ServedNames) > 0 {
		made.Names = m.cfg.Model.ServedNames
	}
	made.Template, made.TemplateError = chatTemplate(m.cfg, from.Tokenizer)
	m.from, m.made = from, made
	return made, nil
}

// apiURL is where applications reach the instance.
func (i *instance) apiURL() string {
	if strings.HasPrefix(i.cfg.Listen.API, "unix:") {
		return i.cfg.Listen.API
	}
	if i.cfg.API.TLS.CertFile != "" {
		return "https://" + i.servers.api
	}
	return "http://" + i.servers.api
}

// door says who may enter, and where the page is.
func (i *instance) door() string {
	text := ""
	if i.cfg.API.UI {
		text += "   page /ui"
	}
	if i.cfg.Auth.Mode == config.AuthKeys {
		text += fmt.Sprintf("   %d keys", len(i.cfg.Keys))
	}
	return text
}

// announce says what serves where, and how to try it.
func (i *instance) announce(s streams) error {
	file := i.file
	if file == "" {
		file = "defaults"
	}
	fmt.Fprintf(s.out, "engine %s (%s) · %s\n", release, buildInfo().Commit, file)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(s.out, "  %-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("node", "%s · %s", i.cfg.NodeName(), i.cfg.Node.Role)
	if i.model != nil {
		name := i.model.api.Names[0]
		if n := len(i.model.drafts); n > 0 {
			name += " and " + plural(n, "draft")
		}
		line("model", "%s   ready in %.1f s · %s", name, i.model.took.Seconds(),
			i.model.device.Name())
		line("memory", "%s", i.loading.memory())
		line("kv", "%s", describePool(
			requests(i.cfg, i.model.about(), i.model.api.Context),
			i.engine.stores[0].Pages()))
		status, _ := i.policies.Active()
		line("policy", "%s  %s · fallback native fcfs", i.policies.observer.name(),
			status.Digest[:min(7, len(status.Digest))])
	}
	if i.servers.api != "" {
		line("api", "%s/v1        metrics /metrics%s", i.apiURL(), i.door())
	}
	if i.servers.admin != "" {
		line("admin", "%s", i.servers.admin)
	}
	if i.servers.internal != "" {
		line("internal", "%s", i.servers.internal)
	}
	if i.servers.api == "" {
		_, err := fmt.Fprintln(s.out, "ready.")
		return err
	}
	name := "MODEL"
	if i.model != nil {
		name = i.model.api.Names[0]
	}
	_, err := fmt.Fprintf(s.out, "ready. Try:  curl %s/v1/chat/completions "+
		"-H 'Content-Type: application/json' \\\n             "+
		`-d '{"model":%q,"messages":[{"role":"user","content":"hi"}]}'`+"\n", i.tryURL(), name)
	return err
}

// tryURL is how curl reaches the API.
func (i *instance) tryURL() string {
	text := i.apiURL()
	if socket, ok := strings.CutPrefix(text, "unix:"); ok {
		text = "--unix-socket " + socket + " http://engine"
	}
	if i.cfg.Auth.Mode == config.AuthKeys {
		text = "-H 'Authorization: Bearer KEY' " + text
	}
	return text
}
