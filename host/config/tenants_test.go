package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const shared = `[tenants.acme]
weight = 2.5
max_seqs = 3
[tenants."b c"]
[class.interactive]
deadline = "2s"
itl = "50ms"
`

func TestTenantsAndClasses(t *testing.T) {
	c := load(t, shared)
	want := []Tenant{{"acme", 2.5, 3}, {"b c", 1, 0}}
	if len(c.Tenants) != 2 || c.Tenants[0] != want[0] || c.Tenants[1] != want[1] {
		t.Errorf("tenants %+v, want %+v", c.Tenants, want)
	}
	if c.Class.Interactive != (Class{2 * time.Second, 50 * time.Millisecond}) ||
		c.Class.Batch != (Class{}) {
		t.Errorf("classes %+v", c.Class)
	}
	if again := load(t, Minimal(c)); Diff(c, again) != nil {
		t.Errorf("read back: %v", Diff(c, again))
	}
	after := load(t, "[tenants.acme]\nweight=3.0\nmax_seqs=3\n[tenants.new]\n"+
		"[class.batch]\nitl='1s'")
	var got []string
	for _, change := range Diff(c, after) {
		if !change.Reloadable {
			t.Errorf("%s needs a restart", change.Key)
		}
		got = append(got, change.Key+" "+change.Old+">"+change.New)
	}
	const all = `class.interactive.deadline "2s">"0s"
class.interactive.itl "50ms">"0s"
class.batch.itl "0s">"1s"
tenants.acme.weight 2.5>3.0
tenants.new.weight >1.0
tenants.new.max_seqs >0
tenants."b c".weight 1.0>
tenants."b c".max_seqs 0>`
	if strings.Join(got, "\n") != all {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), all)
	}
}

// TestTenantMistakes: each says where it is and what to write.
func TestTenantMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"tenants = 3":                           "E011 1:11 write [tenants.NAME]",
		"[tenants]\nacme = 3":                   "E011 2:1 write [tenants.acme]",
		"[tenants.acme]\nwieght = 2.0":          `E101 2:1 did you mean "weight"?`,
		"[tenants.acme]\nweight = 0.0":          "2:10",
		"[tenants.acme]\nmax_seqs = -1":         "2:12",
		"[tenants.acme]\nweight = \"2\"":        "2:10",
		"[tenants.\"a\u00e9\"]\nweight = 2.0":   "1:2 write at most 128",
		"[class.interactve]\nitl = '1s'":        `did you mean "class.interactive"?`,
		"[class.batch]\nitl = 3":                "2:7",
		"[class]\nbatch = 3":                    "batch",
		"[tenants.acme]\nweight = 1.0\nfoo = 1": "it has weight and max_seqs",
	} {
		c, problems := parse("engine.toml", text)
		if c != nil || len(problems) != 1 {
			t.Errorf("%q: %v", text, problems)
			continue
		}
		p := problems[0]
		said := fmt.Sprintf("%s %d:%d %s %s", p.Code, p.Line, p.Column, p.Label, p.Message)
		if !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %q in it", text, said, want)
		}
	}
}
