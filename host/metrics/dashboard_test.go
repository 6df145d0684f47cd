package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// board is what this test reads of a dashboard.
type board struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

// family is what testdata/series.txt says of one.
type family struct {
	kind   string
	labels []string
}

func families(t *testing.T) map[string]family {
	t.Helper()
	text, err := os.ReadFile("testdata/series.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]family{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		all[f[0]] = family{f[1], f[2:]}
	}
	return all
}

// The parts of an expression that name something of ours.
var (
	seriesIn = regexp.MustCompile(`(engine_[a-z0-9_]+)\{([^}]*)\}`)
	groupBy  = regexp.MustCompile(`by \(([a-z_, ]+)\)`)
	matcher  = regexp.MustCompile(`([a-z_]+)=~?"`)
	legend   = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
)

// TestDashboardDrawsWhatIsThere: every series, label and variable of the dashboard exists, every
// family of ours is drawn, and no panel lies on another.
func TestDashboardDrawsWhatIsThere(t *testing.T) {
	var b board
	if err := json.Unmarshal(Dashboard(), &b); err != nil {
		t.Fatal(err)
	}
	all, drawn := families(t), map[string]bool{}
	for _, p := range b.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s draws nothing", p.Title)
		}
		for _, target := range p.Targets {
			name, problem := checkTarget(all, target.Expr, target.LegendFormat)
			if problem != "" {
				t.Errorf("%s: %s\n%s", p.Title, problem, target.Expr)
			}
			for _, n := range name {
				drawn[n] = true
			}
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "engine_") && !drawn[name] {
			t.Errorf("%s is in no panel", name)
		}
	}
	checkGrid(t, b)
	if len(drawn) < 40 || len(b.Templating.List) != 4 {
		t.Errorf("%d families, %d variables", len(drawn), len(b.Templating.List))
	}
}

// checkTarget returns the families that an expression reads, or what is wrong with it.
func checkTarget(all map[string]family, expr, legendFormat string) (names []string,
	problem string) {
	var labels []string
	for _, found := range seriesIn.FindAllStringSubmatch(expr, -1) {
		name := found[1]
		f, ok := all[name]
		if base, cut := strings.CutSuffix(name, "_bucket"); cut && all[base].kind == "histogram" {
			name, f, ok = base, all[base], true
			labels = append(labels, "le")
		} else if f.kind == "histogram" {
			return nil, name + " is a histogram: it has _bucket, _sum and _count"
		}
		if !ok {
			return nil, "there is no " + name
		}
		if f.kind == "counter" && !strings.Contains(expr, "rate("+found[1]) {
			return nil, name + " is a counter without a rate"
		}
		names, labels = append(names, name), append(labels, f.labels...)
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(f.labels, m[1]) {
				return nil, name + " has no label " + m[1]
			}
		}
	}
	if len(names) == 0 {
		return nil, "it reads no series"
	}
	for _, by := range groupBy.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(by[1], ", ") {
			if !slices.Contains(labels, l) {
				return nil, "there is no label " + l
			}
		}
	}
	grouped := strings.Join(flatten(groupBy.FindAllStringSubmatch(expr, -1)), ", ")
	for _, l := range legend.FindAllStringSubmatch(legendFormat, -1) {
		if grouped != "" && !slices.Contains(strings.Split(grouped, ", "), l[1]) ||
			!slices.Contains(labels, l[1]) {
			return nil, "the legend's label " + l[1] + " is not in the result"
		}
	}
	return names, ""
}

func flatten(found [][]string) (texts []string) {
	for _, f := range found {
		texts = append(texts, f[1])
	}
	return texts
}

// checkGrid wants panels side by side in 24 columns, each with a number of its own.
func checkGrid(t *testing.T, b board) {
	t.Helper()
	taken, ids := map[string]string{}, map[int]bool{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the number %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		g := p.GridPos
		if g.X+g.W > 24 {
			t.Errorf("%s reaches beyond the right edge", p.Title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				at := fmt.Sprint(x, " ", y)
				if taken[at] != "" {
					t.Fatalf("%s lies on %s", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
	}
}

func TestTenantsAreBounded(t *testing.T) {
	m := use()
	for i := range 200 {
		m.TenantTokens(fmt.Sprint("tenant", i), 1)
	}
	m.TenantTokens("", 5)
	m.TenantTokens("tenant3", 6)
	text := scrape(t, m, "")
	if n := strings.Count(text, "\nengine_tenant_service_tokens_total{"); n != maxTenants+1 {
		t.Errorf("%d tenants have a series", n)
	}
	for _, want := range []string{`tenant="tenant3"} 7`, `tenant="acme"} 30`,
		`tenant="other"} 142`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestPoliciesAreBounded: whatever names are refused, those that decide have series of their own.
func TestPoliciesAreBounded(t *testing.T) {
	m := use()
	for i := range 200 {
		m.PolicyFault(fmt.Sprint("refused", i), "load_lint")
	}
	m.PolicyDecided(PolicyCall{Policy: "good", Took: time.Microsecond})
	m.PolicyFault("good", "load_lint")
	for i := range 200 {
		m.PolicyFallback(fmt.Sprint("asked", i))
	}
	text := scrape(t, m, "")
	if n := strings.Count(text, "\nengine_policy_faults_total{"); n > maxRefused+4 {
		t.Errorf("%d series of faults", n)
	}
	if n := strings.Count(text, "\nengine_policy_fallback_steps_total{"); n > maxPolicies+1 {
		t.Errorf("%d series of fallbacks", n)
	}
	for _, want := range []string{`engine_policy_decide_seconds_count{model="m",node="n",` +
		`policy="good",role="all"} 1`, `class="load_lint",model="m",node="n",policy="good",`,
		`policy="other",`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}
