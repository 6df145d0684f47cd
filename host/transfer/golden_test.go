package transfer

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden frames and the tables of PROTOCOL.md")

// goldenFrames is one frame of each kind, as bytes on the wire.
func goldenFrames(t *testing.T) map[string][]byte {
	p := newPair(t, 42, smallShape, Window{Begin: 2, End: 10})
	with := p.out.pass
	open := slices.Clone(p.out.Output())
	kv := make([]byte, 2*smallShape.slotBytes)
	for i := range kv {
		kv[i] = byte(i)
	}
	data := append(make([]byte, dataHead), kv...)
	where := place{model: 0, layer: 1, position: 2, count: 2}
	where.put(data, kv)
	laid := make([]byte, dataHead)
	where.putPlaced(laid, 512)
	s := seal{end: 6, bytes: 16, digest: leafOf(data)}
	return map[string][]byte{
		"open":      open,
		"accept":    appendFrame(nil, kindAccept, with, []byte{2, 0, 0, 0}),
		"data":      appendFrame(nil, kindData, with, data),
		"placed":    appendFrame(nil, kindPlaced, with, laid),
		"taken":     appendFrame(nil, kindTaken, with, []byte{1, 0, 0, 0}),
		"seal":      appendFrame(nil, kindSeal, with, s.append(nil)),
		"ack":       appendFrame(nil, kindAck, with, s.append(nil)),
		"refuse":    appendFrame(nil, kindRefuse, pass{}, appendReason(nil, fault(Busy, "why"))),
		"cancel":    appendFrame(nil, kindCancel, with, appendReason(nil, fault(Cancelled, "why"))),
		"cancelled": appendFrame(nil, kindCancelled, with, nil),
		"beat":      appendFrame(nil, kindBeat, with, nil),
		"nearby":    appendFrame(nil, kindNearby, pass{}, nil),
		"way": appendFrame(nil, kindWay, pass{}, way{
			name: "kv-0123456789abcdef.sock", by: []Transport{Unix, Shared},
		}.append(nil)),
	}
}

// A change of these bytes is a change of the protocol: ProtocolVersion must change with them.
func TestGoldenFrames(t *testing.T) {
	frames := goldenFrames(t)
	for k := kindOpen; k <= lastKind; k++ {
		path := filepath.Join("testdata", fmt.Sprintf("v%d-%v.bin", ProtocolVersion, k))
		got := frames[k.String()]
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %x\nwant %x", k, got, want)
		}
		d := decoder{bound: MaxFrame}
		rest := want
		for len(rest) > 0 {
			n := copy(d.space(), rest)
			d.filled(n)
			rest = rest[n:]
		}
		f, ok, bad := d.next(newPair(t, 42, smallShape, Window{Begin: 2, End: 10}).out.pass)
		if !ok || bad != nil || f.kind != k {
			t.Errorf("%v does not read: %v", k, bad)
		}
	}
}

// PROTOCOL.md prints the transition tables that the code reads.
func TestProtocolPrintsTheTables(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	fresh := string(text)
	for name, list := range map[string][]move{
		"sender": senderMoves, "receiver": receiverMoves, "lease": leaseMoves,
	} {
		start, stop := "<!-- "+name+" table -->\n", "<!-- end of "+name+" table -->"
		from, to := strings.Index(fresh, start), strings.Index(fresh, stop)
		if from < 0 || to < from {
			t.Fatalf("PROTOCOL.md has no place for the table of the %s", name)
		}
		fresh = fresh[:from+len(start)] + tableText(list) + fresh[to:]
	}
	if *update {
		if err := os.WriteFile("PROTOCOL.md", []byte(fresh), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if fresh != string(text) {
		t.Error("PROTOCOL.md prints other tables than the code reads: run the test with -update")
	}
	for _, number := range []string{
		fmt.Sprintf("`%d` bytes", headerSize), fmt.Sprintf("%d KiB", maxOpening>>10),
		fmt.Sprintf("%d MiB", MaxFrame>>20), fmt.Sprintf("version %d", ProtocolVersion),
	} {
		if !strings.Contains(fresh, number) {
			t.Errorf("PROTOCOL.md does not say %q", number)
		}
	}
	for r := Malformed; r <= PageFault; r++ {
		row := fmt.Sprintf("| %d | %v | `%s` | `%s` |", r, r, r.Code(), r.Label())
		if !strings.Contains(fresh, row) {
			t.Errorf("PROTOCOL.md lacks the reason: %s", row)
		}
	}
}

func tableText(list []move) string {
	var b strings.Builder
	b.WriteString("| state | on | next state | does |\n|---|---|---|---|\n")
	for _, m := range list {
		does := m.does.String()
		if does != "" && m.note != "" {
			does += "; "
		}
		fmt.Fprintf(&b, "| %v | %v | %v | %s |\n", m.from, m.on, m.to, does+m.note)
	}
	return b.String()
}

// Each state but the first is reached, each but the last is left, and a closed or reset connection
// and silence are known everywhere.
func TestTablesAreComplete(t *testing.T) {
	for _, c := range []struct {
		list  []move
		table *moves
		start state
		ends  []state
	}{
		{senderMoves, senderTable, asking, []state{done, failed}},
		{receiverMoves, receiverTable, expecting, []state{closed}},
	} {
		seen := map[state]bool{c.start: true}
		for range states {
			for _, m := range c.list {
				if seen[m.from] {
					seen[m.to] = true
				}
			}
		}
		for s := range seen {
			last := slices.Contains(c.ends, s)
			for _, on := range []input{onClosed, onTimeout} {
				if (c.table[s][on].to == none) != last {
					t.Errorf("%v on %v: %v", s, on, c.table[s][on].to)
				}
			}
		}
		for _, m := range c.list {
			if !seen[m.from] || slices.Contains(c.ends, m.from) {
				t.Errorf("%v is never left by %v", m.from, m.on)
			}
		}
	}
}
