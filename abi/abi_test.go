package abi

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// codec is what every record has.
type codec interface {
	Encode(dst []byte)
	Decode(src []byte) error
}

// records lists every record: a golden one, how to make an empty one, and its size.
var records = []struct {
	name   string
	golden codec
	zero   func() codec
	size   int
}{
	{"header", goldenHeader(), func() codec { return new(Header) }, HeaderSize},
	{"record", goldenRecord(), func() codec { return new(Record) }, RecordSize},
	{"decision", goldenDecision(), func() codec { return new(Decision) }, DecisionSize},
	{"descriptor", goldenDescriptor(), func() codec { return new(Descriptor) }, DescriptorSize},
	{"peer", goldenPeer(), func() codec { return new(Peer) }, PeerSize},
	{"tenant", goldenTenant(), func() codec { return new(Tenant) }, TenantSize},
	{"event", goldenEvent(), func() codec { return new(Event) }, EventSize},
}

// goldenBytes reads the bytes column of a golden file.
func goldenBytes(t testing.TB, name string) []byte {
	text, err := os.ReadFile(fmt.Sprintf("testdata/%s.v%d.%d.txt", name, Major, Minor))
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		part, err := hex.DecodeString(strings.Fields(line)[1])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw = append(raw, part...)
	}
	return raw
}

func TestGoldenBytes(t *testing.T) {
	for _, r := range records {
		want := goldenBytes(t, r.name)
		if len(want) != r.size {
			t.Fatalf("%s: golden file holds %d bytes, size is %d", r.name, len(want), r.size)
		}
		got := bytes.Repeat([]byte{0xEE}, r.size+1)
		r.golden.Encode(got)
		if !bytes.Equal(got[:r.size], want) {
			t.Errorf("%s: Encode\n got %x\nwant %x", r.name, got[:r.size], want)
		}
		if got[r.size] != 0xEE {
			t.Errorf("%s: Encode writes past its size", r.name)
		}
		read := r.zero()
		if err := read.Decode(want); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		if !reflect.DeepEqual(read, r.golden) {
			t.Errorf("%s: Decode\n got %+v\nwant %+v", r.name, read, r.golden)
		}
	}
}

func TestShortRecordIsAnError(t *testing.T) {
	for _, r := range records {
		for n := range r.size {
			if err := r.zero().Decode(make([]byte, n)); err == nil {
				t.Fatalf("%s: %d of %d bytes decode", r.name, n, r.size)
			}
		}
		if err := r.zero().Decode(make([]byte, r.size+9)); err != nil {
			t.Errorf("%s: bytes behind the record: %v", r.name, err)
		}
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	record, header := goldenRecord(), goldenHeader()
	buf := make([]byte, HeaderSize)
	allocs := testing.AllocsPerRun(100, func() {
		record.Encode(buf)
		if record.Decode(buf) != nil {
			t.Fail()
		}
		header.Encode(buf)
		if header.Decode(buf) != nil {
			t.Fail()
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzDecode: any bytes of sufficient length decode, and encoding gives them back but for padding.
func FuzzDecode(f *testing.F) {
	for _, r := range records {
		f.Add(goldenBytes(f, r.name))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, r := range records {
			first := r.zero()
			if err := first.Decode(src); (err != nil) != (len(src) < r.size) {
				t.Fatalf("%s: %d bytes: %v", r.name, len(src), err)
			}
			if len(src) < r.size {
				continue
			}
			raw := make([]byte, r.size)
			first.Encode(raw)
			again := r.zero()
			if err := again.Decode(raw); err != nil || !reflect.DeepEqual(first, again) {
				t.Fatalf("%s: %+v became %+v (%v)", r.name, first, again, err)
			}
		}
	})
}

func BenchmarkEncodeRecord(b *testing.B) {
	record := goldenRecord()
	table := make([]byte, 1024*RecordSize)
	for i := 0; b.Loop(); i++ {
		at := i % 1024 * RecordSize
		record.Encode(table[at : at+RecordSize])
	}
}
