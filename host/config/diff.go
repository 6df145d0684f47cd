package config

import (
	"fmt"
	"reflect"
	"slices"
)

// Change is one key that two configurations set differently. Old and New are as the file writes
// them, "" where a table is not there.
type Change struct {
	Key        string
	Old, New   string
	Reloadable bool // a running engine can take it; else it needs a restart
}

// Diff lists the keys that differ, in the order of the full file.
func Diff(before, after *Config) []Change {
	var changes []Change
	for i := range keys {
		r := &keys[i]
		if a, b := r.format(before), r.format(after); a != b {
			changes = append(changes, Change{r.name(), a, b, r.reload})
		}
	}
	if !slices.EqualFunc(before.Keys, after.Keys, sameKey) {
		changes = append(changes, Change{"auth.keys", countKeys(before), countKeys(after), true})
	}
	changes = append(changes, diffPolicies(before.Policies, after.Policies)...)
	changes = append(changes, diffTenants(before.Tenants, after.Tenants)...)
	lists := []struct {
		key           string
		before, after []Instance
	}{
		{"router.prefill", before.Router.Prefill, after.Router.Prefill},
		{"router.decode", before.Router.Decode, after.Router.Decode},
	}
	for _, l := range lists {
		if a, b := fmt.Sprint(l.before), fmt.Sprint(l.after); a != b {
			changes = append(changes, Change{l.key, instances(l.before), instances(l.after), true})
		}
	}
	return changes
}

// diffPolicies compares module by module, those that are gone last.
func diffPolicies(before, after []PolicyModule) []Change {
	var changes []Change
	old := map[string]PolicyModule{}
	for _, p := range before {
		old[p.Name] = p
	}
	add := func(name, key, a, b string) {
		if a != b {
			changes = append(changes, Change{"policies." + name + "." + key, a, b, true})
		}
	}
	for _, p := range after {
		was := old[p.Name]
		delete(old, p.Name)
		add(p.Name, "path", shown(was.Path), shown(p.Path))
		add(p.Name, "score", shown(was.Score), shown(p.Score))
		add(p.Name, "chunk", shown(was.Chunk), shown(p.Chunk))
		add(p.Name, "sha256", shown(was.SHA256), shown(p.SHA256))
		add(p.Name, "config", string(was.Config), string(p.Config))
	}
	for _, p := range before {
		if _, gone := old[p.Name]; gone {
			add(p.Name, "path", shown(p.Path), "")
			add(p.Name, "score", shown(p.Score), "")
		}
	}
	return changes
}

// shown quotes what is there.
func shown(s string) string {
	if s == "" {
		return ""
	}
	return quote(s)
}

// instances shows a list of them by name.
func instances(list []Instance) string {
	names := make([]string, len(list))
	for i, instance := range list {
		names[i] = instance.Name + " " + instance.URL
	}
	return formatList(names)
}

func sameKey(a, b Key) bool { return reflect.DeepEqual(a, b) }

// countKeys says how many keys may enter; which they are is nobody's business.
func countKeys(c *Config) string { return fmt.Sprintf("%d keys", len(c.Keys)) }
