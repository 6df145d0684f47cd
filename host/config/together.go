package config

import (
	"fmt"
	"slices"
	"strings"
)

// together checks what only several keys can show to be wrong.
func (c *checker) together() {
	c.decidingPolicies()
	c.adminListener()
	c.listeners()
	c.routerInstances()
	c.chunks()
	c.processors()
	c.tiles()
	c.roundings()
	c.cards()
	c.openAPI()
	c.keysOrNone()
	c.certificate()
	c.prefillPeers()
}

// value is the place of a key's value, or of its table, or the start of the file.
func (c *checker) value(key string) place {
	if env := c.file.env[key]; env != "" {
		return place{env: env}
	}
	if n := c.file.find(key); n != nil {
		return n.value
	}
	if table, _, ok := strings.Cut(key, "."); ok {
		if n := c.file.find(table); n != nil {
			return n.value
		}
	}
	return place{}
}

// note adds a remark.
func (c *checker) note(key, message string) {
	problem := c.file.at(c.value(key))
	problem.Message = message
	c.problems = append(c.problems, problem)
}

// decidingPolicies wants active, or select and chunk in its place, and each of them built in or
// defined.
func (c *checker) decidingPolicies() {
	p := &c.config.Policy
	switch {
	case p.Select == "" && p.Chunk == "":
		c.definedPolicy("policy.active", p.Active)
		return
	case p.Select == "" || p.Chunk == "":
		given, missing := "policy.select", "chunk"
		if p.Select == "" {
			given, missing = "policy.chunk", "select"
		}
		c.report(c.value(given), "E203", given+" stands alone",
			fmt.Sprintf("name the module for %s too, or use policy.active", missing))
		return
	case p.Select == p.Chunk:
		c.report(c.value("policy.chunk"), "E203", "policy.select and policy.chunk are one module",
			"use policy.active for a module that decides both")
		return
	}
	given := c.file.find("policy.active") != nil || c.file.env["policy.active"] != ""
	if given && p.Active != "" {
		c.report(c.value("policy.active"), "E203", "[policy] has active, and select and chunk",
			"select and chunk stand in place of active: leave it out")
		return
	}
	p.Active = ""
	c.definedPolicy("policy.select", p.Select)
	c.definedPolicy("policy.chunk", p.Chunk)
}

// definedPolicy wants the policy that a key names to be built in or defined.
func (c *checker) definedPolicy(key, name string) {
	if c.bad[key] || slices.Contains(Builtins(), name) {
		return
	}
	defined := Builtins()
	for _, p := range c.config.Policies {
		if p.Name == name {
			return
		}
		defined = append(defined, p.Name)
	}
	if c.file.find("policies."+name) != nil {
		return // Its table is there and has been refused.
	}
	label := fmt.Sprintf("no [policies.%s] table; built in: %s", name,
		BuiltinNames())
	var help []string
	if guess := closestPolicy(name, defined); guess != "" {
		help = append(help, didYouMean(guess))
	}
	if checkName(name) == "" {
		help = append(help,
			fmt.Sprintf(`or add a table [policies.%s] with path = "FILE.wasm"`, name))
	} else if label = "built in: " + BuiltinNames(); help == nil {
		help = []string{`a module of your own has a table [policies.NAME] with path = "FILE.wasm"`}
	}
	c.report(c.value(key), "E201", fmt.Sprintf("policy %q is not defined", name), label, help...)
}

// closestPolicy also takes a part of a name: "sjf" for builtin:sjf-aging.
func closestPolicy(name string, defined []string) string {
	if guess := closest(name, defined); guess != "" || len(name) < 3 {
		return guess
	}
	for _, d := range defined {
		bare := strings.TrimPrefix(d, "builtin:")
		if strings.Contains(bare, name) || closest(name, []string{bare}) != "" {
			return d
		}
	}
	return ""
}

// adminListener refuses an admin listener that others can reach: it loads code.
func (c *checker) adminListener() {
	admin := c.config.Listen.Admin
	host, _, ok := splitHostPort(admin.Value)
	if c.bad["listen.admin"] || !admin.Set || strings.HasPrefix(admin.Value, "unix:") || !ok ||
		isLoopback(host) {
		return
	}
	label := "reachable from the network"
	if isEvery(host) {
		label = "reachable from every interface"
	}
	c.report(c.value("listen.admin"), "E301",
		"listen.admin must not be reachable from the network", label,
		`use "auto" (a unix socket that only you can open) or "127.0.0.1:`+
			portOf(admin.Value)+`"`)
}

func isEvery(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

func portOf(address string) string {
	_, port, _ := splitHostPort(address)
	return port
}

// listeners wants an address for each listener, and the one that the role needs.
func (c *checker) listeners() {
	l := c.config.Listen
	keys := []string{"listen.api", "listen.admin", "listen.internal"}
	addresses := []string{l.API, l.Admin.Value, l.Internal}
	for i, address := range addresses {
		for j := range i {
			if address == "" || c.bad[keys[i]] || c.bad[keys[j]] ||
				!sameListener(address, addresses[j]) {
				continue
			}
			at, other := keys[i], keys[j]
			if c.file.find(at) == nil && c.file.env[at] == "" {
				at, other = other, at
			}
			c.report(c.value(at), "E304",
				fmt.Sprintf("%s and %s are the same address", keys[j], keys[i]),
				fmt.Sprintf("%s listens there already", other))
		}
	}
	role := c.config.Node.Role
	need := ""
	if role == RoleRouter && l.API == "" {
		need = "api"
	} else if (role == RolePrefill || role == RoleDecode) && l.Internal == "" {
		need = "internal"
	}
	if need != "" && !c.bad["node.role"] {
		c.report(c.value("listen."+need), "E306",
			fmt.Sprintf("role %q needs listen.%s", role, need), "nobody could reach it")
	}
}

// sameListener says whether both cannot be opened at once.
func sameListener(a, b string) bool {
	if a == b {
		return portOf(a) != "0"
	}
	hostA, portA, okA := splitHostPort(a)
	hostB, portB, okB := splitHostPort(b)
	local := isLoopback(hostA) && isLoopback(hostB) && (hostA == "localhost" ||
		hostB == "localhost")
	return okA && okB && portA == portB && portA != "0" &&
		(isEvery(hostA) || isEvery(hostB) || local)
}

// routerInstances wants both kinds of instances for a router, and each of them once.
func (c *checker) routerInstances() {
	r, role := c.config.Router, c.config.Node.Role
	if c.bad["node.role"] || c.bad["router.prefill"] || c.bad["router.decode"] {
		return
	}
	all := slices.Concat(r.Prefill, r.Decode)
	if role != RoleRouter {
		if len(all) > 0 {
			c.note("router", fmt.Sprintf("[[router.prefill]] and [[router.decode]] are used "+
				"with role = \"router\" only; this is role = %q", role))
		}
		return
	}
	ofModel := func(x Change) bool { return strings.HasPrefix(x.Key, "model.") }
	if slices.ContainsFunc(Diff(Default(), c.config), ofModel) {
		c.note("model", "[model] is not used with role = \"router\": a router asks its instances")
	}
	missing := ""
	switch {
	case len(all) == 0:
		missing = "[[router.prefill]] or [[router.decode]]"
	case len(r.Prefill) == 0:
		missing = "[[router.prefill]]"
	case len(r.Decode) == 0:
		missing = "[[router.decode]]"
	}
	if missing != "" {
		c.report(c.value("node.role"), "E302", "a router needs instances to route to",
			fmt.Sprintf("no %s in this file", missing),
			"`engine config init --role router` writes an example; role = \"all\" needs no router")
	}
	c.distinct(all, "name", func(i Instance) string { return i.Name })
	c.distinct(all, "url", func(i Instance) string { return strings.TrimRight(i.URL, "/") })
}

// distinct refuses two instances with one name or URL.
func (c *checker) distinct(all []Instance, key string, of func(Instance) string) {
	for i := range all {
		first := slices.IndexFunc(all, func(x Instance) bool { return of(x) == of(all[i]) })
		if of(all[i]) == "" || first == i {
			continue
		}
		c.report(c.value(c.instanceKey(i)+"."+key), "E303",
			fmt.Sprintf("two instances have the %s %q", key, of(all[i])),
			fmt.Sprintf("%s has it already", all[first].Name))
	}
}

// instanceKey is the dotted name of instance i of both lists in a row.
func (c *checker) instanceKey(i int) string {
	if n := len(c.config.Router.Prefill); i >= n {
		return fmt.Sprintf("router.decode.%d", i-n)
	}
	return fmt.Sprintf("router.prefill.%d", i)
}

// chunks wants room for an aligned chunk in a step.
func (c *checker) chunks() {
	s := c.config.Scheduler
	if c.bad["scheduler.chunk_align"] || c.bad["scheduler.chunk_max"] ||
		c.bad["scheduler.token_budget"] {
		return
	}
	name, most := "scheduler.token_budget", s.TokenBudget
	if s.ChunkMax.Set && s.ChunkMax.Value < most {
		name, most = "scheduler.chunk_max", s.ChunkMax.Value
	}
	if s.ChunkAlign > most {
		c.report(c.value("scheduler.chunk_align"), "E305",
			"scheduler.chunk_align leaves no room for a chunk",
			fmt.Sprintf("must be at most %s, which is %d", name, most))
	}
}

// prefillPeers warns of a prefill instance that could dial none but itself.
func (c *checker) prefillPeers() {
	internal := c.config.Listen.Internal
	host, _, ok := splitHostPort(internal)
	if c.config.Node.Role != RolePrefill || !ok || isLoopback(host) || c.bad["listen.internal"] {
		return
	}
	for _, peer := range c.config.Transfer.Peers {
		if network, _, _ := strings.Cut(peer, "/"); !isLoopback(network) {
			return
		}
	}
	c.note("listen.internal", "transfer.peers holds loopback only: this prefill instance listens "+
		"on "+internal+" but can send to no other machine")
}
