//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestChaos runs a router before three prefill and three decode processes under load, and kills,
// stops, cuts and stalls them at random. Every request must end with the tokens that one engine
// alone gives, each once; in the end nothing may be held anywhere, and no process may have grown.
//
// It runs only with ENGINE_CHAOS, which is how long: ENGINE_CHAOS=10m. ENGINE_CHAOS_SEED replays
// the order of what is done to whom; when it meets which request is up to the machine.
func TestChaos(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("ENGINE_CHAOS"))
	if err != nil {
		t.Skip("set ENGINE_CHAOS to a duration, such as 30s or 10m")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ENGINE_CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("ENGINE_CHAOS_SEED=%d", seed)
	rolls := rand.New(rand.NewPCG(seed, 7))
	bank := chaosBank(t, rolls)
	c := startChaos(t)
	load := startChaosLoad(t, c.router.api, bank, seed)
	for ends := time.Now().Add(long); time.Now().Before(ends) && !t.Failed(); {
		c.act(rolls)
	}
	c.heal()
	load.end()
	c.check(t)
	if d := c.done; long >= 20*time.Second && min(d.kills, d.stops, d.cuts, d.stalls) == 0 {
		t.Errorf("not everything was done: %s", d)
	}
	t.Logf("%s; %s", c.done.String(), load)
}

// chaosCluster is the fleet and what was done to it.
type chaosCluster struct {
	t      *testing.T
	router *node
	list   [2][]*chaosNode // by role: prefill, decode
	done   chaosDeeds
	most   map[string]int // the largest resident set of each process, in KiB
}

// chaosDeeds counts what was done.
type chaosDeeds struct{ kills, stops, cuts, stalls int }

func (d chaosDeeds) String() string {
	return fmt.Sprintf("%d kills, %d stops, %d cuts, %d stalls", d.kills, d.stops, d.cuts, d.stalls)
}

// chaosNode is an instance that others reach through a proxy, wherever it listens itself.
type chaosNode struct {
	*node
	name  string
	proxy *chaosProxy
	// hurt until then; what is done to it in the end.
	until time.Time
	mend  func()
}

const chaosPerRole = 3

// chaosTransports are what the instances of a role speak: what both ends of a pair have is used.
var chaosTransports = [chaosPerRole]string{`["tcp"]`, `["unix", "tcp"]`, `["shm", "unix", "tcp"]`}

func startChaos(t *testing.T) *chaosCluster {
	t.Helper()
	c := &chaosCluster{t: t, most: map[string]int{}}
	for role, name := range []string{"prefill", "decode"} {
		for i := range chaosPerRole {
			n := &chaosNode{name: fmt.Sprintf("%s%d", name, i), proxy: startChaosProxy(t)}
			n.node = prepareNode(t, fmt.Sprintf("[node]\nrole = %q\nname = %q\n"+
				"[kv_cache]\nmemory = \"6MiB\"\n"+
				"[scheduler]\nmax_num_seqs = 16\ntoken_budget = 256\n"+
				"[transfer]\nlease = \"4s\"\nmax_rate = \"4MiB/s\"\nadvertise = %q\n"+
				"transports = %s\n[listen]\napi = \"\"\ninternal = \"127.0.0.1:0\"\n",
				name, n.name, n.proxy.Addr(), chaosTransports[i]))
			c.list[role] = append(c.list[role], n)
			n.start(t)
		}
	}
	front := func(list []*chaosNode) (nodes []*node) {
		for _, n := range list {
			nodes = append(nodes, &node{internal: "http://" + n.proxy.Addr().String()})
		}
		return nodes
	}
	c.router = serveRouter(t, "[router]\nretries = 4\nhealth_interval = \"500ms\"\n"+
		"pd_balance = \"auto\"\nmin_remote_tokens = 8\n", front(c.list[0]), front(c.list[1]))
	return c
}

// start runs the instance and leads the proxy to it.
func (n *chaosNode) start(t *testing.T) {
	t.Helper()
	n.process = launch(t, "serve", "-c", n.file, "--until-eof")
	n.awaitReady()
	n.proxy.lead(n.internal[len("http://"):])
}

// act waits a little, mends what is due and hurts somebody. One instance of each role that the
// router has as up is left alone at any time: then no request has a reason to fail.
func (c *chaosCluster) act(r *rand.Rand) {
	c.wait(time.Duration(50+r.IntN(500)) * time.Millisecond)
	list := c.list[r.IntN(2)]
	n := list[r.IntN(len(list))]
	deed, lasts := r.IntN(5), time.Duration(200+r.IntN(4000))*time.Millisecond
	if n.mend != nil || !c.others(list, n) {
		return
	}
	select {
	case <-n.done:
		c.t.Fatalf("%s ended by itself", n.name)
	default:
	}
	n.until = time.Now().Add(lasts)
	switch deed {
	case 0, 1:
		c.done.kills++
		n.kill()
		n.mend = func() { n.start(c.t) }
	case 2:
		c.done.stops++
		n.signal(syscall.SIGSTOP)
		n.mend = func() { n.signal(syscall.SIGCONT) }
	case 3:
		c.done.cuts++
		n.proxy.cut()
	case 4:
		c.done.stalls++
		n.proxy.stall()
		n.mend = n.proxy.goOn
	}
}

// others reports whether the router has another instance of a role as up that is not hurt.
func (c *chaosCluster) others(list []*chaosNode, but *chaosNode) bool {
	s, err := scrape(c.router.api)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range list {
		up := s.sum("engine_router_instance_up", fmt.Sprintf("instance=%q", n.name))
		if n != but && n.mend == nil && up == 1 {
			return true
		}
	}
	return false
}

func (n *chaosNode) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// wait mends what is due meanwhile.
func (c *chaosCluster) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, n := range append(c.list[0], c.list[1]...) {
			if n.mend != nil && time.Now().After(n.until) {
				n.mend()
				n.mend = nil
			}
		}
		c.weigh()
		select {
		case <-tick.C:
		case <-timer.C:
			return
		}
	}
}

// heal mends everything.
func (c *chaosCluster) heal() {
	for _, n := range append(c.list[0], c.list[1]...) {
		if n.mend != nil {
			n.mend()
			n.mend = nil
		}
	}
}

// weigh remembers the largest resident set of each process.
func (c *chaosCluster) weigh() {
	for _, n := range append(c.list[0], c.list[1]...) {
		c.most[n.name] = max(c.most[n.name], residentKiB(n.cmd.Process.Pid))
	}
	c.most["router"] = max(c.most["router"], residentKiB(c.router.cmd.Process.Pid))
}

// check wants nothing held anywhere, and no process larger than its model and its pages allow.
func (c *chaosCluster) check(t *testing.T) {
	t.Helper()
	for _, n := range append(c.list[0], c.list[1]...) {
		rest(t, n.node)
		if leaked := n.metric("engine_kv_pages_leaked"); leaked != 0 {
			t.Errorf("%s: %v pages have no owner", n.name, leaked)
		}
	}
	eventually(t, patience, func() error {
		s, err := scrape(c.router.api)
		if n := s.sum("engine_router_instance_inflight"); err == nil && n != 0 {
			err = fmt.Errorf("the router counts %v requests in flight", n)
		}
		if up := s.sum("engine_router_instance_up"); err == nil && up != 2*chaosPerRole {
			err = fmt.Errorf("%v instances are up", up)
		}
		return err
	})
	if c.router.metric("engine_router_retries_total") == 0 {
		t.Error("no request ever had to go elsewhere")
	}
	const most = 400 << 10
	for name, kib := range c.most {
		if kib > most {
			t.Errorf("%s grew to %d KiB", name, kib)
		}
	}
	t.Logf("largest resident sets in KiB: %v", c.most)
	c.router.stop()
	for _, n := range append(c.list[0], c.list[1]...) {
		n.stop()
	}
}

// chaosLoad sends requests until it is told to end.
type chaosLoad struct {
	t    *testing.T
	url  string
	bank []chaosRequest
	stop chan struct{}
	wait sync.WaitGroup

	mu                               sync.Mutex
	right, cancelled, failed, tokens int
	longest                          time.Duration
	worst                            string
}

const chaosClients = 8

func startChaosLoad(t *testing.T, url string, bank []chaosRequest, seed uint64) *chaosLoad {
	l := &chaosLoad{t: t, url: url + "/v1/completions", bank: bank, stop: make(chan struct{})}
	for client := range chaosClients {
		r := rand.New(rand.NewPCG(seed, uint64(client)))
		l.wait.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-t.Context().Done():
					return
				default:
					l.one(r)
				}
			}
		})
	}
	return l
}

// one makes one request and judges its answer. One in ten goes away in the middle.
func (l *chaosLoad) one(r *rand.Rand) {
	q := &l.bank[r.IntN(len(l.bank))]
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	leaves := r.IntN(10) == 0
	if leaves {
		timer := time.AfterFunc(time.Duration(r.IntN(400))*time.Millisecond, cancel)
		defer timer.Stop()
	}
	begun := time.Now()
	got, err := q.ask(ctx, l.url, r.IntN(2) == 0)
	took := time.Since(begun)
	l.mu.Lock()
	defer l.mu.Unlock()
	if took > l.longest {
		l.longest, l.worst = took, q.name
	}
	switch {
	case l.t.Context().Err() != nil: // The test has failed already.
	case leaves && ctx.Err() != nil:
		l.cancelled++
	case err != nil:
		l.failed++
		l.t.Errorf("%s: after %v: %v", q.name, took.Round(time.Millisecond), err)
	default:
		l.right++
		l.tokens += len(got.tokens)
		if diff := got.differs(q.want); diff != "" {
			l.t.Errorf("%s: %s", q.name, diff)
		}
	}
}

// end lets those that are under way finish.
func (l *chaosLoad) end() {
	close(l.stop)
	l.wait.Wait()
}

func (l *chaosLoad) String() string {
	return fmt.Sprintf("%d requests right (%d tokens), %d cancelled, %d failed; the longest took "+
		"%v (%s)", l.right, l.tokens, l.cancelled, l.failed, l.longest.Round(time.Millisecond),
		l.worst)
}
