package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvrelay/engine/host/admin"
	"github.com/kvrelay/engine/host/router"
)

// fronted is a router with what it last read of its instances' metrics, for rates.
type fronted struct {
	*router.Router
	models *routerModels
	http   *http.Client
	now    func() time.Time
	stop   context.CancelFunc // ends the checks of the instances

	mu   sync.Mutex
	last map[string]*reading
}

// reading is one look at an instance's counters, and the rates since the look before.
type reading struct {
	at     time.Time
	values map[string]float64
	load   admin.Load
	policy string
}

func newFronted(r *router.Router, m *routerModels) *fronted {
	return &fronted{Router: r, models: m, http: &http.Client{}, now: time.Now,
		last: map[string]*reading{}}
}

// describe fills in what a router knows: its instances.
func (f *fronted) describe(ctx context.Context, s *admin.State) {
	if m, fault := f.models.get(); fault == nil {
		s.Model = m.Names[0]
	}
	places := f.Instances()
	s.Instances = make([]admin.Instance, len(places))
	var wait sync.WaitGroup
	for n, p := range places {
		s.Instances[n] = admin.Instance{Name: p.Name, Role: p.Role.String(), Up: p.Up,
			InFlight: p.InFlight, Draining: p.Draining, URL: p.URL,
			State: string(p.State), Problem: p.Problem}
		if p.State == router.StateSilent {
			continue // It was asked a moment ago: whoever reads this would wait for nothing.
		}
		wait.Go(func() { f.look(ctx, p.URL, &s.Instances[n]) })
	}
	wait.Wait()
	for _, i := range s.Instances {
		s.Running += i.Running
		s.Waiting += i.Waiting
		s.Pages.Free += i.Pages.Free
		s.Pages.Held += i.Pages.Held
		s.Pages.Cached += i.Pages.Cached
		s.Pages.Total += i.Pages.Total
		s.Pages.Leaked += i.Pages.Leaked
		s.PrefillPerSecond += i.PrefillPerSecond
		s.DecodePerSecond += i.DecodePerSecond
	}
}

// freshFor is how long a look is good for: several people may watch at once.
const freshFor = 500 * time.Millisecond

// look reads an instance's metrics, unless somebody just did.
func (f *fronted) look(ctx context.Context, url string, to *admin.Instance) {
	f.mu.Lock()
	before := f.last[url]
	f.mu.Unlock()
	if before == nil || f.now().Sub(before.at) >= freshFor {
		values, policy, err := f.read(ctx, url+"/metrics")
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer to /metrics in %v", statePatience)
		}
		if err != nil {
			to.Problem = cmp.Or(to.Problem, err.Error())
			return
		}
		next := &reading{at: f.now(), values: values, policy: policy}
		next.load = loadOf(values)
		if before != nil {
			next.rates(before)
		}
		f.mu.Lock()
		f.last[url] = next
		f.mu.Unlock()
		before = next
	}
	to.Load, to.Policy = before.load, before.policy
}

// rates compares with the look before.
func (r *reading) rates(before *reading) {
	seconds := r.at.Sub(before.at).Seconds()
	grown := func(name string) float64 { return max(0, r.values[name]-before.values[name]) }
	prefill := grown("engine_step_tokens_sum prefill")
	decode := grown("engine_step_tokens_sum decode")
	r.load.PrefillPerSecond, r.load.DecodePerSecond = prefill/seconds, decode/seconds
	r.load.RequestsPerSecond = grown("engine_requests_finished_total") / seconds
	if steps := grown("engine_step_seconds_count run"); steps > 0 {
		r.load.BatchTokens = (prefill + decode) / steps
		const milliseconds = 1000
		r.load.StepMilliseconds = grown("engine_step_seconds_sum run") / steps * milliseconds
	}
}

// loadOf are the gauges.
func loadOf(v map[string]float64) admin.Load {
	pages := func(state string) int { return int(v["engine_kv_pages "+state]) }
	l := admin.Load{Running: int(v["engine_requests_running"]),
		Waiting: int(v["engine_requests_waiting"]),
		Errors:  int(v["engine_requests_finished_total error"]),
		Pages: admin.Pages{Free: pages("free"), Held: pages("pinned"), Cached: pages("evictable"),
			Quarantine: pages("quarantine"), Leaked: int(v["engine_kv_pages_leaked"])}}
	l.Pages.Total = l.Pages.Free + l.Pages.Held + l.Pages.Cached + l.Pages.Quarantine
	return l
}

// maxScrape bounds what an instance may answer.
const maxScrape = 4 << 20

// watched are the labels that tell the series apart that a State is made of.
var watched = map[string]string{
	"engine_requests_running": "", "engine_requests_waiting": "", "engine_kv_pages": "state",
	"engine_kv_pages_leaked": "", "engine_step_tokens_sum": "kind",
	"engine_requests_finished_total": "reason", "engine_step_seconds_count": "stage",
	"engine_step_seconds_sum": "stage",
}

// read fetches the series that are watched: summed by name, and by name and label.
func (f *fronted) read(ctx context.Context, url string) (map[string]float64, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	response, err := f.http.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("%s answered %s", url, response.Status)
	}
	return readSeries(io.LimitReader(response.Body, maxScrape))
}

// readSeries reads the text format. Labels with quotes in them are not among those watched.
func readSeries(r io.Reader) (values map[string]float64, policy string, err error) {
	values = map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		cut := strings.LastIndexByte(line, ' ')
		if cut < 0 || line[0] == '#' {
			continue
		}
		name, labels, _ := strings.Cut(line[:cut], "{")
		if name == "engine_policy_info" && labelOf(labels, "state") == "active" {
			policy = labelOf(labels, "policy")
			if v := labelOf(labels, "version"); v != "" && !strings.HasPrefix(policy, "builtin:") {
				policy += "@" + v
			}
		}
		label, ok := watched[name]
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			return nil, "", errors.New("a series without a number: " + name)
		}
		values[name] += value
		if label != "" {
			values[name+" "+labelOf(labels, label)] += value
		}
	}
	return values, policy, lines.Err()
}

// labelOf is the value of a label in name="value",… as the text format writes it.
func labelOf(labels, name string) string {
	_, rest, ok := strings.Cut(","+labels, ","+name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}
