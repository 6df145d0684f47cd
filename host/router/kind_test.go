package router

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/kvrelay/engine/host/generation"
	"github.com/kvrelay/engine/host/openai"
	"github.com/kvrelay/engine/host/placement"
)

// permutations calls each with every order of the numbers below n.
func permutations(n int, each func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(int)
	place = func(at int) {
		if at == n {
			each(slices.Clone(order))
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			place(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	place(0)
}

// TestWhoIsSetAsideDependsOnNoOrder: of instances that do not all fit, the same ones are used in
// whatever order they first answer; requests are served, a decode instance is never set aside for
// a prefill instance, and each that is set aside is in the log once, with what mends it.
func TestWhoIsSetAsideDependsOnNoOrder(t *testing.T) {
	for _, c := range []struct {
		prefill, decode string // the kinds, an instance a letter
		used            string
	}{
		{"b", "f", "d0"},
		{"f", "f", "p0 d0"},
		{"bf", "f", "p1 d0"},
		{"b", "fb", "d0"},        // As many of each: the first in the list.
		{"f", "bff", "p0 d1 d2"}, // Most decode instances.
		{"bb", "f", "d0"},
	} {
		permutations(len(c.prefill)+len(c.decode), func(order []int) {
			var fakes []*fakeInstance
			var lists [2][]*fakeInstance
			for role, kinds := range []string{c.prefill, c.decode} {
				for n, kind := range strings.Split(kinds, "") {
					f := newInstance(t, string("pd"[role])+string(rune('0'+n)), kind)
					fakes, lists[role] = append(fakes, f), append(lists[role], f)
				}
			}
			var lines bytes.Buffer
			r := unmet(t, lists[0], lists[1])
			r.options.Log = slog.New(slog.NewTextHandler(&lines, nil))
			r.options.Mend = func(_, _, there string) string { return " (set it to " + there + ")" }
			for range 3 {
				for _, n := range order {
					role := placement.Decode
					if n < len(c.prefill) {
						role = placement.Prefill
					}
					r.check(t.Context(), role, fakes[n].who.Name)
				}
			}
			var used []string
			for _, p := range r.Instances() {
				if p.State == StateUp {
					used = append(used, p.Name)
				} else if !strings.Contains(p.Problem, "(set it to ") {
					t.Errorf("%+v: %s: %q", c, p.Name, p.Problem)
				}
			}
			if got := strings.Join(used, " "); got != c.used {
				t.Errorf("%+v in the order %v: %q are used", c, order, got)
			}
			// Otherwise the kind that leads may change on the way.
			if len(c.decode) == 1 && c.prefill != "bf" {
				warned := strings.Count(lines.String(), "(set it to ")
				if warned != len(fakes)-len(used) {
					t.Errorf("%+v in the order %v: %d warnings\n%s", c, order, warned, &lines)
				}
			}
			if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
				t.Errorf("%+v in the order %v: %v, %v", c, order, got, err)
			}
			for _, f := range fakes {
				f.server.Close()
			}
		})
	}
}

// TestAnotherKindServesWhereNoneIsLeft: decode instances that do not fit the first ones are used
// once those have gone, and until they are back.
func TestAnotherKindServesWhereNoneIsLeft(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "f"), newInstance(t, "d1", "b")
	r := fleet(t, nil, []*fakeInstance{d0, d1})
	states := func(want ...State) {
		t.Helper()
		r.checkAll(t.Context())
		r.checkAll(t.Context())
		for n, name := range []string{"d0", "d1"} {
			if state, why := stateOf(r, name); state != want[n] {
				t.Errorf("%s: %s, %q, want %s", name, state, why, want[n])
			}
		}
		if got, _, err := ask(t.Context(), r); err != nil || !slices.Equal(got, tokens) {
			t.Errorf("%v, %v", got, err)
		}
	}
	states(StateUp, StateDown)
	d0.set(func() { d0.ready = openai.Errorf(openai.CodeDraining, "", "it leaves") })
	states(StateDraining, StateUp)
	d0.set(func() { d0.ready = nil })
	states(StateUp, StateDown)
	if err := r.Drain(placement.Decode, "d0", true); err != nil {
		t.Fatal(err)
	}
	r.checkAll(t.Context())
	r.checkAll(t.Context())
	if state, why := stateOf(r, "d1"); state != StateUp {
		t.Errorf("beside one that drains: %s, %q", state, why)
	}
}

// TestWhyNobodyServes: a request and /ready say of each decode instance why it takes none.
func TestWhyNobodyServes(t *testing.T) {
	d0, d1 := newInstance(t, "d0", "x"), newInstance(t, "d1", "x")
	r := fleet(t, nil, []*fakeInstance{d0})
	says := func(code openai.Code, want string) {
		t.Helper()
		fault := r.Ready()
		if fault == nil || fault.Code != code || !strings.Contains(fault.Message, want) {
			t.Errorf("/ready: %+v, want %s: %s", fault, code, want)
		}
		_, _, err := ask(t.Context(), r)
		told, ok := errors.AsType[*generation.Error](err)
		if !ok || string(told.Code) != string(code) || !strings.Contains(told.Message, want) {
			t.Errorf("a request: %v, want %s: %s", err, code, want)
		}
		if text := r.Ready().Message + err.Error(); strings.Contains(text, "127.0.0.1") {
			t.Errorf("an address: %s", text)
		}
	}
	if err := r.Drain(placement.Decode, "d0", true); err != nil {
		t.Fatal(err)
	}
	says(openai.CodeDraining, "d0 is draining")
	if err := r.Drain(placement.Decode, "d0", false); err != nil {
		t.Fatal(err)
	}
	d0.set(func() { d0.ready = openai.Errorf(openai.CodeDraining, "", "it leaves") })
	r.checkAll(t.Context())
	says(openai.CodeDraining, "d0 is draining")
	d1.who.Role = "prefill"
	if err := r.Replace(nil, []Endpoint{d0.endpoint(), d1.endpoint()}); err != nil {
		t.Fatal(err)
	}
	r.checkAll(t.Context())
	says(openai.CodeNoHealthyDecode, "d0 is draining; d1 does not fit: its role is prefill")
	d0.server.Close()
	r.checkAll(t.Context())
	says(openai.CodeNoHealthyDecode, "d0 does not answer: ")
	if err := r.Replace(nil, nil); err != nil {
		t.Fatal(err)
	}
	says(openai.CodeNoHealthyDecode, "no decode instance is listed")
}

// TestALostInstanceIsToldWithoutItsAddress: the client of the only decode instance hears what broke
// and not where; the log has the address, and says that nobody goes on, not that another one does.
func TestALostInstanceIsToldWithoutItsAddress(t *testing.T) {
	d := newInstance(t, "d0", "x")
	r := fleet(t, nil, []*fakeInstance{d})
	var lines bytes.Buffer
	r.options.Log = slog.New(slog.NewTextHandler(&lines, nil))
	address := d.server.Listener.Addr().String()
	d.server.Close()
	_, _, err := ask(t.Context(), r)
	if err == nil || !strings.Contains(err.Error(), "d0 was lost after 0 tokens") ||
		strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "http:") {
		t.Errorf("%v", err)
	}
	log := lines.String()
	if !strings.Contains(log, address) || strings.Contains(log, "goes on") ||
		!strings.Contains(log, "no instance is left for the request") {
		t.Errorf("the log: %s", log)
	}
}

// TestWithoutAddresses: what other programs' errors look like.
func TestWithoutAddresses(t *testing.T) {
	for text, want := range map[string]string{
		`Post "http://127.0.0.1:17803/microserving/start_generate": read tcp ` +
			`127.0.0.1:5->127.0.0.1:17803: read: connection reset by peer`: `Post ` +
			`/microserving/start_generate: read tcp: read: connection reset by peer`,
		`Get "http://node-3:8001/ready": dial tcp: lookup node-3 on 10.0.0.2:53: no such ` +
			`host`: `Get /ready: dial tcp: lookup: no such host`,
		"read the answer of https://[::1]:80/x: unexpected EOF": "read the answer of /x: " +
			"unexpected EOF",
		"dial unix /run/engine/p0.sock: connect: refused": "dial unix: connect: refused",
		"10.1.2.3:7000 and [fe80::1%eth0]:1 closed":       "(address) and (address) closed",
		"fma here: 3:1 positions [1, 3)":                  "fma here: 3:1 positions [1, 3)",
	} {
		if got := withoutAddresses(text); got != want {
			t.Errorf("%s:\n%s, want\n%s", text, got, want)
		}
	}
}
