package transfer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// letterText is a metadata string as anybody could forge it: the MAC is 32 zero bytes.
func letterText(t testing.TB, l letter) string {
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(append(text, make([]byte, 32)...))
}

func goodLetter() letter {
	return letter{
		Version: 1, Address: "127.0.0.1:7601", Lease: "l", Epoch: 3,
		Token:  strings.Repeat("ab", 16),
		Compat: "x", Models: [][]int{{2, 80, 32, 144, 8}},
	}
}

var long = strings.Repeat("x", 300)

var forty = Window{Begin: 10, End: 50}

func TestMetadataReads(t *testing.T) {
	m, bad := parseMetadata(letterText(t, goodLetter()), forty, 1)
	if bad != nil {
		t.Fatal(bad)
	}
	if m.Address != "127.0.0.1:7601" || m.Lease != "l" || m.Epoch != 3 || m.token[0] != 0xab ||
		!slices.Equal(m.Segments[0], []Segment{{80, 32}, {144, 8}}) {
		t.Fatalf("%+v", m)
	}
	if s := fmt.Sprintf("%v %+v %#v", m, m, m.token.String()); strings.Contains(s, "abab") {
		t.Fatalf("the token is printed: %s", s)
	}
}

func TestMetadataRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(l *letter)
		window Window
		says   string
	}{
		"version":            {func(l *letter) { l.Version = 2 }, forty, "version 2"},
		"no models":          {func(l *letter) { l.Models = nil }, forty, "0 lists of slots for 1"},
		"two models":         {func(l *letter) { l.Models = make([][]int, 2) }, forty, "2 lists"},
		"empty list":         {func(l *letter) { l.Models[0] = nil }, forty, "0 numbers"},
		"even list":          {func(l *letter) { l.Models[0] = []int{1, 2} }, forty, "2 numbers"},
		"wrong nseg":         {func(l *letter) { l.Models[0][0] = 3 }, forty, "5 numbers"},
		"negative length":    {func(l *letter) { l.Models[0][2] = -32 }, forty, "-32 slots"},
		"length zero":        {func(l *letter) { l.Models[0][2] = 0 }, forty, "0 slots"},
		"overflowing length": {func(l *letter) { l.Models[0][2] = 1 << 62 }, forty, "segment 0"},
		"negative slot":      {func(l *letter) { l.Models[0][1] = -2 }, forty, "slot -2"},
		"huge slot":          {func(l *letter) { l.Models[0][1] = 1 << 40 }, forty, "at slot"},
		"overlap":            {func(l *letter) { l.Models[0][3] = 111 }, forty, "slot 111 is"},
		"sum too small":      {func(l *letter) {}, Window{10, 51}, "40 slots"},
		"sum too large":      {func(l *letter) {}, Window{10, 49}, "40 slots"},
		"negative window":    {func(l *letter) {}, Window{-1, 39}, "no window"},
		"backward window":    {func(l *letter) {}, Window{39, 3}, "no window"},
		"short token":        {func(l *letter) { l.Token = "abcd" }, forty, "token"},
		"long token":         {func(l *letter) { l.Token += "00" }, forty, "token"},
		"token not hex":      {func(l *letter) { l.Token = "zz" + l.Token[2:] }, forty, "token"},
		"no lease":           {func(l *letter) { l.Lease = "" }, forty, "lease id"},
		"long lease":         {func(l *letter) { l.Lease = long }, forty, "lease id"},
		"no port":            {func(l *letter) { l.Address = "127.0.0.1" }, forty, "host:port"},
		"a scheme":           {func(l *letter) { l.Address = "http://a:80" }, forty, "host:port"},
		"a path":             {func(l *letter) { l.Address = "host:80/x" }, forty, "host:port"},
		"a user":             {func(l *letter) { l.Address = "a@host:80" }, forty, "host:port"},
		"port 0":             {func(l *letter) { l.Address = "host:0" }, forty, "host:port"},
		"port too high":      {func(l *letter) { l.Address = "host:65536" }, forty, "host:port"},
		"decimal address":    {func(l *letter) { l.Address = "2130706433:80" }, forty, "host:port"},
		"octal address":      {func(l *letter) { l.Address = "0177.0.0.1:80" }, forty, "host:port"},
		"control characters": {func(l *letter) { l.Address = "a\r\nb:80" }, forty, "host:port"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := goodLetter()
			c.change(&l)
			_, bad := parseMetadata(letterText(t, l), c.window, 1)
			if bad == nil || bad.Reason != InvalidMetadata ||
				!strings.Contains(bad.Detail, c.says) {
				t.Fatalf("got %v, want %q", bad, c.says)
			}
		})
	}
	good := letterText(t, goodLetter())
	for name, text := range map[string]string{
		"empty": "", "no base64": "ä" + good, "cut": good[:len(good)-1],
		"newline": good[:8] + "\n" + good[8:],
		"short":   "AAAA", "too long": strings.Repeat("A", MaxMetadata+4),
		"no JSON": base64.StdEncoding.EncodeToString(make([]byte, 64)),
	} {
		if _, bad := parseMetadata(text, forty, 1); bad == nil || bad.Reason != InvalidMetadata {
			t.Errorf("%s: %v", name, bad)
		}
	}
}

// The example of the segments' specification: pages 5, 6 and 9 of 16 slots, 40 tokens.
func TestCompress(t *testing.T) {
	var slots []int
	for i := range 32 {
		slots = append(slots, 80+i)
	}
	for i := range 8 {
		slots = append(slots, 144+i)
	}
	segments := Compress(slots)
	flat := flatten(segments)
	if !slices.Equal(flat, []int{2, 80, 32, 144, 8}) {
		t.Fatalf("%v", flat)
	}
	back, bad := unflatten(flat)
	if bad != nil || !slices.Equal(back, segments) {
		t.Fatal(back, bad)
	}
	want := []int{3, -1, 2, 0, 2, -1, 1}
	if got := flatten(Compress([]int{-1, -1, 0, 1, -1})); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	if got := flatten(Compress(nil)); !slices.Equal(got, []int{0}) {
		t.Fatalf("%v", got)
	}
}

func TestGrantRefuses(t *testing.T) {
	p := newPair(t, 1, smallShape, Window{End: 4})
	good := func() (string, Reservation) {
		return "new", Reservation{
			Window: Window{End: 2}, Segments: [][]Segment{{{Slot: 90, Count: 2}}},
		}
	}
	id, r := good()
	if _, err := p.ledger.Grant(id, r, 0); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(id *string, r *Reservation){
		"in use":     func(id *string, r *Reservation) { *id = "new" },
		"no id":      func(id *string, r *Reservation) { *id = "" },
		"bad UTF-8":  func(id *string, r *Reservation) { *id = "\xff" },
		"long id":    func(id *string, r *Reservation) { *id = strings.Repeat("i", 257) },
		"window":     func(id *string, r *Reservation) { r.Window.Begin = 3 },
		"two models": func(id *string, r *Reservation) { r.Segments = append(r.Segments, nil) },
		"short":      func(id *string, r *Reservation) { r.Segments[0][0].Count = 1 },
		"too many pieces": func(id *string, r *Reservation) {
			r.Window.End = 20000
			r.Segments[0] = nil
			for i := range 20000 {
				r.Segments[0] = append(r.Segments[0], Segment{Slot: 2 * i, Count: 1})
			}
		},
	}
	for name, change := range cases {
		id, r := good()
		id = "other"
		change(&id, &r)
		if _, err := p.ledger.Grant(id, r, 0); err == nil {
			t.Errorf("%s: granted", name)
		}
	}
	p.ledger.options.MaxLeases = 2
	if _, err := p.ledger.Grant("third", Reservation{
		Window: Window{}, Segments: [][]Segment{nil},
	}, 0); err == nil {
		t.Error("more leases than the most")
	}
	if len(p.ledger.leases) != 2 || len(p.ledger.byID) != 2 {
		t.Error("a refused grant left something")
	}
}

func TestPeers(t *testing.T) {
	p, err := ParsePeers([]string{"10.0.0.0/24", "192.168.7.9", "Decode-1.example", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for address, allowed := range map[string]bool{
		"10.0.0.7:1": true, "10.0.1.7:1": false, "192.168.7.9:1": true, "192.168.7.8:1": false,
		"[fd00::1]:1": true, "[::ffff:10.0.0.7]:1": true, "[::ffff:127.0.0.1]:1": false,
		"127.0.0.1:1": false, "0.0.0.0:1": false, "[fe80::1%eth0]:1": false,
		"169.254.169.254:80": false,
	} {
		e, bad := parseEndpoint(address)
		if bad == nil {
			bad = p.check(e)
		}
		if (bad == nil) != allowed {
			t.Errorf("%s: %v", address, bad)
		}
	}
	listed, _ := parseEndpoint("decode-1.EXAMPLE:7601")
	other, _ := parseEndpoint("decode-2.example:7601")
	inside, _ := parseEndpoint("10.0.0.3:1")
	outside, _ := parseEndpoint("9.9.9.9:1")
	for _, c := range []struct {
		e, to endpoint
		want  bool
	}{{listed, outside, true}, {other, inside, true}, {other, outside, false}} {
		found, bad := p.judge(c.e, []netip.Addr{c.to.addr})
		if (bad == nil) != c.want {
			t.Errorf("%s at %v: %v %v", c.e.name, c.to.addr, found, bad)
		}
	}
	if _, bad := p.judge(other, []netip.Addr{outside.addr, inside.addr}); bad != nil {
		t.Error("one allowed address is enough")
	}
	wrong := []string{"", "10.0.0.0/33", "a b", "http://x", "-x.example", "1.2.3", "host:80"}
	for _, entry := range wrong {
		if _, err := ParsePeers([]string{entry}); err == nil {
			t.Errorf("%q is taken for a peer", entry)
		}
	}
	def, err := ParsePeers(nil)
	if err != nil || !def.allowsAddr(netip.MustParseAddr("127.8.0.1")) ||
		!def.allowsAddr(netip.MustParseAddr("::1")) ||
		def.allowsAddr(netip.MustParseAddr("10.0.0.1")) {
		t.Error("the default is not loopback", err)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(letterText(f, goodLetter()), 10, 50)
	two := goodLetter()
	two.Models = [][]int{{1, -1, 40}, {1, 0, 40}}
	f.Add(letterText(f, two), 0, 40)
	f.Fuzz(func(t *testing.T, text string, begin, end int) {
		w := Window{begin, end}
		for models := range 3 {
			m, bad := parseMetadata(text, w, models)
			if bad != nil {
				if bad.Reason != InvalidMetadata {
					t.Fatal(bad)
				}
				continue
			}
			for _, segments := range m.Segments {
				one := Model{Compat: Compat{PageSize: 16, Layers: 1}, SlotBytes: 2}
				l := newLayout(w, one, segments)
				sent := 0
				for p := l.due(w.Begin); p < w.End; {
					r := l.run(p, w.End)
					if r.Page < 0 || r.Count < 1 || r.First+r.Count > 16 {
						t.Fatalf("%+v at %d", r, p)
					}
					sent += r.Count
					p = l.due(p + r.Count)
				}
				if sent != l.sent(w.Begin) {
					t.Fatalf("%d slots walked, %d counted", sent, l.sent(w.Begin))
				}
			}
		}
	})
}
