package placement

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func pool(t *testing.T, prefill, decode []string) *Pool {
	t.Helper()
	p, err := New(prefill, decode)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// place places a new ticket and says where.
func place(t *testing.T, p *Pool, ticket *Ticket) string {
	t.Helper()
	if err := p.Place(ticket); err != nil {
		return err.Error()
	}
	return ticket.Instance(Prefill) + ">" + ticket.Instance(Decode)
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestLeastLoadedAndTiesToTheFirst(t *testing.T) {
	p := pool(t, []string{"p0", "p1"}, []string{"d0", "d1", "d2"})
	var a, b, c, d Ticket
	expect(t, place(t, p, &a), "p0>d0")
	expect(t, place(t, p, &b), "p1>d1")
	expect(t, place(t, p, &c), "p0>d2")
	b.Release(Decode)
	expect(t, place(t, p, &d), "p1>d1")
}

func TestReportedLoadCounts(t *testing.T) {
	p := pool(t, []string{"p0", "p1"}, []string{"d0", "d1"})
	p.Healthy(Prefill, "p0", Report{Waiting: 2})
	p.Healthy(Decode, "d0", Report{Running: 1})
	var a, b, c, d Ticket
	expect(t, place(t, p, &a), "p1>d1")
	expect(t, place(t, p, &b), "p1>d0") // d0 and d1 are equal now.
	// Our own request in d1's report is not counted a second time.
	p.Healthy(Decode, "d1", Report{Running: 1})
	p.Healthy(Decode, "d0", Report{Running: 2})
	expect(t, place(t, p, &c), "p0>d1")
	p.Healthy(Prefill, "p0", Report{})
	expect(t, place(t, p, &d), "p0>d0")
}

func TestDownAfterThreeAndBack(t *testing.T) {
	p := pool(t, []string{"p0"}, []string{"d0", "d1"})
	for n := 1; n <= DownAfter; n++ {
		if went := p.Failed(Decode, "d0"); went != (n == DownAfter) {
			t.Fatalf("failure %d: went down: %v", n, went)
		}
	}
	if p.Failed(Decode, "d0") {
		t.Fatal("went down twice")
	}
	var a, b, c Ticket
	expect(t, place(t, p, &a), "p0>d1")
	for range DownAfter {
		p.Failed(Prefill, "p0")
	}
	expect(t, place(t, p, &b), ">d1") // The decode instance prefills itself.
	if !p.Healthy(Decode, "d0", Report{}) || p.Healthy(Decode, "d0", Report{}) {
		t.Fatal("coming up is reported once")
	}
	p.Healthy(Prefill, "p0", Report{})
	expect(t, place(t, p, &c), "p0>d0")
}

func TestFailuresMustBeInARow(t *testing.T) {
	p := pool(t, nil, []string{"d0"})
	for range 3 * DownAfter {
		if p.Failed(Decode, "d0") {
			t.Fatal("went down")
		}
		if p.Failed(Decode, "d0") {
			t.Fatal("went down")
		}
		p.Healthy(Decode, "d0", Report{})
	}
}

func TestRetriesGoElsewhere(t *testing.T) {
	p := pool(t, []string{"p0", "p1"}, []string{"d0", "d1"})
	var a Ticket
	expect(t, place(t, p, &a), "p0>d0")
	a.Exclude(Prefill)
	expect(t, place(t, p, &a), "p1>d0") // The decode instance was not at fault.
	a.Exclude(Prefill)
	expect(t, place(t, p, &a), ">d0")
	a.Exclude(Decode)
	expect(t, place(t, p, &a), ">d1")
	a.Exclude(Decode)
	if err := p.Place(&a); !errors.Is(err, ErrTried) {
		t.Fatal(err)
	}
	for range DownAfter {
		p.Failed(Decode, "d0")
		p.Failed(Decode, "d1")
	}
	if err := p.Place(&a); !errors.Is(err, ErrNoDecode) || p.Ready() {
		t.Fatal(err)
	}
	for _, i := range p.Snapshot() {
		if i.InFlight != 0 {
			t.Errorf("%+v", i)
		}
	}
}

func TestReplaceKeepsWhatStays(t *testing.T) {
	p := pool(t, nil, []string{"d0", "d1"})
	var a, b, c Ticket
	expect(t, place(t, p, &a), ">d0")
	expect(t, place(t, p, &b), ">d1")
	if err := p.Replace(nil, []string{"d2", "d2"}); err == nil {
		t.Fatal("a name twice is accepted")
	}
	if err := p.Replace(nil, []string{"d1", "d2"}); err != nil {
		t.Fatal(err)
	}
	expect(t, place(t, p, &c), ">d2")
	a.Release(Decode) // Of an instance that is gone.
	b.Release(Decode)
	c.Release(Decode)
	expect(t, fmt.Sprint(p.Snapshot()),
		"[{d1 decode true false 0 0 0} {d2 decode true false 0 0 0}]")
	p.Failed(Decode, "d0")
	p.Healthy(Decode, "d0", Report{})
}

// TestCountsReturnToZero runs random requests to random ends against a twin that recounts.
func TestCountsReturnToZero(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	names := [][]string{{"p0", "p1", "p2"}, {"d0", "d1", "d2"}}
	p := pool(t, names[0], names[1])
	tickets := make([]Ticket, 30)
	for range 5000 {
		ticket, role := &tickets[r.IntN(len(tickets))], Role(r.IntN(2))
		name := names[role][r.IntN(3)]
		switch r.IntN(8) {
		case 0:
			p.Failed(role, name)
		case 1:
			p.Healthy(role, name, Report{Waiting: r.IntN(5), Running: r.IntN(5)})
		case 2:
			ticket.Release(role)
		case 3:
			ticket.Exclude(role)
		case 4:
			ticket.Release(Prefill)
			ticket.Release(Decode)
			*ticket = Ticket{}
		case 5:
			p.PlaceDecode(ticket)
		default:
			p.Place(ticket)
		}
		checkCounts(t, p, tickets)
	}
	for i := range tickets {
		tickets[i].Release(Prefill)
		tickets[i].Release(Decode)
	}
	checkCounts(t, p, nil)
}

func checkCounts(t *testing.T, p *Pool, tickets []Ticket) {
	t.Helper()
	want := map[string]int{}
	for i := range tickets {
		want[tickets[i].Instance(Prefill)]++
		want[tickets[i].Instance(Decode)]++
	}
	for _, i := range p.Snapshot() {
		if i.InFlight != want[i.Name] {
			t.Fatalf("%+v holds %d tickets", i, want[i.Name])
		}
	}
}
