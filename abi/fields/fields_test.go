package fields

import (
	"encoding/binary"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/kvrelay/engine/abi"
)

func TestNames(t *testing.T) {
	for goName, want := range map[string]string{
		"ID": "id", "ArrivalNS": "arrival_ns", "LeaseMSLeft": "lease_ms_left",
		"KVBytesPerToken": "kv_bytes_per_token", "RemainingPrefill": "remaining_prefill",
		"CostCtxPS": "cost_ctx_ps", "IDLow": "id_low", "NSlots": "n_slots",
	} {
		if got := Name(goName); got != want {
			t.Errorf("%s: %s, want %s", goName, got, want)
		}
	}
}

// TestRecordsLieAsTheABISays writes a pattern into the bytes of each record and reads every field
// at
// the offset that Of gives. The names must be those of SPEC.md.
func TestRecordsLieAsTheABISays(t *testing.T) {
	check[abi.Header](t, (*abi.Header).Decode, abi.HeaderSize)
	check[abi.Record](t, (*abi.Record).Decode, abi.RecordSize)
	check[abi.Decision](t, (*abi.Decision).Decode, abi.DecisionSize)
}

func check[T any](t *testing.T, decode func(*T, []byte) error, size int) {
	t.Helper()
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, size)
	for i := range raw {
		raw[i] = byte(37*i + 11)
	}
	record := new(T)
	if err := decode(record, raw); err != nil {
		t.Fatal(err)
	}
	for _, f := range Of[T]() {
		if !strings.Contains(string(spec), "`"+f.Name+"`") {
			t.Errorf("%s is not in SPEC.md", f.Name)
		}
		wide := make([]byte, 8)
		n := map[reflect.Kind]int{reflect.Uint8: 1, reflect.Uint16: 2, reflect.Uint32: 4,
			reflect.Int32: 4, reflect.Uint64: 8, reflect.Int64: 8}[f.Kind]
		copy(wide, raw[f.Offset:f.Offset+n])
		want := binary.LittleEndian.Uint64(wide)
		if got := Get(record, f) & (1<<(8*n-1)<<1 - 1); got != want {
			t.Errorf("%s at %d: %#x, want %#x", f.Name, f.Offset, got, want)
		}
	}
}

func TestSet(t *testing.T) {
	var r abi.Record
	f, _ := Find[abi.Record]("priority")
	if !Set(&r, f, -5) || r.Priority != -5 || Set(&r, f, 1<<40) {
		t.Errorf("priority %d", r.Priority)
	}
	f, _ = Find[abi.Record]("kind")
	if Set(&r, f, -1) || Set(&r, f, 256) || !Set(&r, f, 3) || r.Kind != 3 {
		t.Errorf("kind %d", r.Kind)
	}
	if _, ok := Find[abi.Record]("prio"); ok {
		t.Error("prio is found")
	}
}
