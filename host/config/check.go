package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checker walks the decoded values and their places side by side, and fills a Config.
type checker struct {
	file     *file
	config   *Config
	problems []Problem
	bad      map[string]bool // keys whose value was refused: no further check may build on them
}

// report adds a problem at p; fill sets its words.
func (c *checker) report(p place, code, message, label string, help ...string) {
	problem := c.file.at(p)
	problem.Code, problem.Message, problem.Label, problem.Help = code, message, label, help
	c.problems = append(c.problems, problem)
}

// root checks what stands outside a table.
func (c *checker) root(values map[string]any) {
	for _, name := range inOrder(c.file.root, values) {
		n := c.file.root.child(name)
		switch {
		case name == "version":
			c.version(values[name], n)
		case name == "policies" || name == "tenants":
			// Names of the user's own: checked by policies and tenants.
		case isTable(name):
			c.table(name, values[name], n)
		default:
			c.unknown("", name, values[name], n)
		}
	}
}

func (c *checker) version(value any, n *node) {
	c.file.set++
	if value != int64(1) {
		label := "this engine reads version 1"
		if _, text := value.(string); text {
			label += "; write it without quotes"
		}
		c.report(n.value, "E103", fmt.Sprintf("version %v is not known", value), label)
	}
}

// table checks [name] and the tables in it.
func (c *checker) table(name string, value any, n *node) {
	values, ok := value.(map[string]any)
	if !ok {
		if n.header {
			c.report(n.value, "E013", fmt.Sprintf("[%s] is one table, not a list", name),
				fmt.Sprintf("write [%s]", name))
		} else {
			c.report(n.key, "E011", fmt.Sprintf("%s is a table", name),
				fmt.Sprintf("write [%s] on a line of its own, its keys below", name))
		}
		return
	}
	for _, key := range inOrder(n, values) {
		kid, full := n.child(key), name+"."+key
		row := find(name, key)
		switch {
		case row != nil:
			c.key(row, values[key], kid)
		case full == "router.prefill" || full == "router.decode":
			c.instances(full, values[key], kid)
		case isTable(full):
			c.table(full, values[key], kid)
		default:
			c.unknown(name, key, values[key], kid)
		}
	}
}

// key checks one value and puts it into the Config.
func (c *checker) key(r *row, value any, n *node) {
	c.file.set++
	if wrong := r.assign(c.config, value); wrong != nil {
		where := n.value
		if wrong.item < len(n.items) {
			where = n.items[wrong.item].value
		}
		help := wrong.help
		if r.help != "" && wrong.code != codeType {
			help = append(help, r.help)
		}
		c.report(where, wrong.code, wrong.message, wrong.label, help...)
		c.bad[r.name()] = true
		return
	}
	if r.path {
		c.resolve(r)
	}
}

// unknown reports a key or table that does not exist, with the likeliest thing meant.
func (c *checker) unknown(table, key string, value any, n *node) {
	full := strings.TrimPrefix(table+"."+key, ".")
	_, isMap := value.(map[string]any)
	_, isList := value.([]map[string]any)
	if (isMap || isList) && !n.set {
		label, help := didYouMean(closest(full, tableNames())), []string(nil)
		if label == "" {
			label = "no such table"
			help = []string{"the tables are: " + strings.Join(tableNames(), ", ")}
		}
		c.report(n.name, "E100", fmt.Sprintf("unknown table [%s]", full), label, help...)
		return
	}
	where := "in [" + table + "]"
	if table == "" {
		where = "outside a table"
	}
	label, help := suggestKey(table, key)
	c.report(n.key, "E101", fmt.Sprintf("unknown key %q %s", key, where), label, help...)
}

// instances checks [[router.prefill]] or [[router.decode]].
func (c *checker) instances(name string, value any, n *node) {
	items, ok := tables(value)
	if !ok {
		c.report(n.value, "E012", fmt.Sprintf("[%s] is a list of instances", name),
			fmt.Sprintf("write [[%s]], once for each instance", name))
		c.bad[name] = true
		return
	}
	list := &c.config.Router.Prefill
	if name == "router.decode" {
		list = &c.config.Router.Decode
	}
	for i, item := range items {
		*list = append(*list, c.instance(name, item, n.element(i), i))
	}
}

// instance checks one element of the list.
func (c *checker) instance(list string, values map[string]any, n *node, i int) Instance {
	short := strings.TrimPrefix(list, "router.")
	result := Instance{Name: fmt.Sprintf("%s%d", short[:1], i)}
	for _, key := range inOrder(n, values) {
		kid := n.child(key)
		c.file.set++
		switch key {
		case "name":
			c.text(kid, list+".name", values[key], &result.Name, nameForm)
		case "url":
			c.text(kid, list+".url", values[key], &result.URL, urlForm)
		default:
			c.report(kid.key, "E101", fmt.Sprintf("unknown key %q in [[%s]]", key, list),
				orElse(didYouMean(closest(key, []string{"name", "url"})), "it has name and url"))
		}
	}
	if _, given := values["url"]; !given {
		c.report(n.value, "E102", fmt.Sprintf("[[%s]] has no url", list),
			`add url = "http://HOST:PORT", its listen.internal`)
	}
	return result
}

// text checks a string of a table that has no rows of its own.
func (c *checker) text(n *node, name string, value any, into *string, f *form) {
	s, ok := value.(string)
	if !ok {
		c.report(n.value, codeType, name+" must be a string", "write it in quotes")
		return
	}
	if label := f.check(s); label != "" {
		c.report(n.value, codeForm, fmt.Sprintf("%s: %q is not %s", name, s, f.what), label)
		return
	}
	*into = s
}

// tables reads a list of tables, whether written [[x]] or x = [{…}].
func tables(value any) ([]map[string]any, bool) {
	switch list := value.(type) {
	case []map[string]any:
		return list, true
	case []any:
		var items []map[string]any
		for _, item := range list {
			m, ok := item.(map[string]any)
			if !ok {
				return nil, false
			}
			items = append(items, m)
		}
		return items, true
	}
	return nil, false
}

// inOrder returns the names in the order of the file, so that reports do not depend on map order.
func inOrder(n *node, values map[string]any) []string {
	names := slices.Collect(maps.Keys(values))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(n.child(a).key.start, n.child(b).key.start), cmp.Compare(a, b))
	})
	return names
}
