package config

import (
	"fmt"
	"time"
)

// Tenant is one [tenants.NAME].
type Tenant struct {
	Name    string
	Weight  float64 // share against the others'; one that no table names has 1
	MaxSeqs int     // requests that may hold pages at once; 0 is no bound of its own
}

// Classes is [class.interactive] and [class.batch].
type Classes struct{ Interactive, Batch Class }

// Class is what the requests of one service class want; 0 is nothing.
type Class struct {
	Deadline time.Duration // of the first token, from arrival, where the request does not say
	ITL      time.Duration // between two tokens of a stream
}

// maxTenants bounds the tables of tenants: as many as policies are told apart.
const maxTenants = 1024

// tenantRows are the keys of a [tenants.NAME].
func tenantRows(t *Tenant) []row {
	return []row{
		{table: "tenants", key: "weight", at: func(*Config) any { return &t.Weight },
			def: "1.0", least: "0.001", most: "1000"},
		{table: "tenants", key: "max_seqs", at: func(*Config) any { return &t.MaxSeqs },
			def: "0", least: "0", most: "65536"},
	}
}

// tenants checks the [tenants.NAME] tables.
func (c *checker) tenants(value any, n *node) {
	if value == nil {
		return
	}
	named, ok := value.(map[string]any)
	if !ok {
		c.report(n.value, "E011", "tenants holds a table for each tenant",
			"write [tenants.NAME], its keys below")
		return
	}
	if len(named) > maxTenants {
		c.report(n.value, "E311", fmt.Sprintf("%d tenants", len(named)),
			fmt.Sprintf("at most %d are told apart", maxTenants))
		return
	}
	for _, name := range inOrder(n, named) {
		kid := n.child(name)
		values, ok := named[name].(map[string]any)
		if !ok {
			c.report(kid.key, "E011", fmt.Sprintf("tenants.%s is a table", name),
				fmt.Sprintf("write [tenants.%s], its keys below", formatKey(name)))
			continue
		}
		if label := tenantForm.check(name); label != "" {
			c.report(kid.name, codeForm, fmt.Sprintf("tenants: %q is not a tenant's name", name),
				label)
			continue
		}
		c.config.Tenants = append(c.config.Tenants, c.tenant(name, values, kid))
	}
}

// tenant checks one [tenants.NAME].
func (c *checker) tenant(name string, values map[string]any, n *node) Tenant {
	t := Tenant{Name: name, Weight: 1}
	rows := tenantRows(&t)
	for _, key := range inOrder(n, values) {
		kid := n.child(key)
		c.file.set++
		at := -1
		for i := range rows {
			if rows[i].key == key {
				at = i
			}
		}
		if at < 0 {
			c.report(kid.key, "E101", fmt.Sprintf("unknown key %q in [tenants.%s]", key, name),
				orElse(didYouMean(closest(key, []string{"weight", "max_seqs"})),
					"it has weight and max_seqs"))
			continue
		}
		if wrong := rows[at].assign(c.config, values[key]); wrong != nil {
			c.report(kid.value, wrong.code, wrong.message, wrong.label, wrong.help...)
		}
	}
	return t
}

// diffTenants compares tenant by tenant, those that are gone last.
func diffTenants(before, after []Tenant) []Change {
	var changes []Change
	old := map[string]Tenant{}
	for _, t := range before {
		old[t.Name] = t
	}
	show := func(t Tenant, there bool) [2]string {
		if !there {
			return [2]string{}
		}
		return [2]string{formatFraction(t.Weight), fmt.Sprint(t.MaxSeqs)}
	}
	add := func(name string, a, b [2]string) {
		for i, key := range []string{"weight", "max_seqs"} {
			if a[i] != b[i] {
				full := "tenants." + formatKey(name) + "." + key
				changes = append(changes, Change{full, a[i], b[i], true})
			}
		}
	}
	for _, t := range after {
		was, there := old[t.Name]
		delete(old, t.Name)
		add(t.Name, show(was, there), show(t, true))
	}
	for _, t := range before {
		if _, gone := old[t.Name]; gone {
			add(t.Name, show(t, true), show(t, false))
		}
	}
	return changes
}
