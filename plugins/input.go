package plugins

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kvrelay/engine/abi"
)

// Input is a saved fault: a module's state, what it was shown from there on, and what came of it.
// With the module it is enough to decide the faulting step again exactly.
type Input struct {
	InputAbout
	base    *checkpoint // nil: the module had just been loaded
	entries []byte      // of the journal, the faulting step last
}

// InputAbout is what a saved fault says of itself.
type InputAbout struct {
	Policy    string          `json:"policy"` // NAME@VERSION
	Digest    string          `json:"digest"` // sha256 of the module's file, hex
	Config    json.RawMessage `json:"config"`
	Slots     int             `json:"slots"`
	Decisions int             `json:"decisions"`
	Offered   uint64          `json:"offered"` // capabilities
	// The limits it ran under; Calibrated is what was measured at load.
	MemoryPages int   `json:"memory_pages"`
	InitFuel    int64 `json:"init_fuel"`
	Fuel        int64 `json:"fuel"`
	Calibrated  int64 `json:"calibrated"`

	Level  int32  `json:"level"`  // lowest that reached the log at load
	Cuts   bool   `json:"cuts"`   // it set the chunk lengths of another's answer
	Lost   bool   `json:"lost"`   // a part of its state could not be saved: it may decide otherwise
	Fault  Fault  `json:"fault"`  // what came of it
	Answer string `json:"answer"` // its decisions, as bytes in base64, where it gave any

	Checkpoint *checkpoint `json:"checkpoint,omitempty"`
}

// The file of a saved fault: this magic and version, then compressed (gzip): the InputAbout as
// JSON, the memory of the checkpoint, and the journal, each behind its length in four bytes.
const (
	inputMagic   = "ENGFAULT"
	inputVersion = 1
)

// Bounds of a file's parts, unpacked.
const (
	inputAboutMost   = 1 << 20
	inputMemoryMost  = MaxMemoryPages * pageBytes
	inputEntriesMost = 64 << 20
	inputTableMost   = 1 << 20 // slots, and decisions
)

// encode writes the file.
func (in *Input) encode(w io.Writer) error {
	about, err := json.Marshal(&in.InputAbout)
	if err != nil {
		return fmt.Errorf("plugins: a saved fault: %w", err)
	}
	head := append([]byte(inputMagic), binary.LittleEndian.AppendUint32(nil, inputVersion)...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // The level exists.
	var memory []byte
	if in.base != nil {
		memory = in.base.memory
	}
	for _, part := range [][]byte{about, memory, in.entries} {
		size := binary.LittleEndian.AppendUint32(nil, uint32(len(part)))
		if _, err := packed.Write(size); err != nil {
			return err
		}
		if _, err := packed.Write(part); err != nil {
			return err
		}
	}
	return packed.Close()
}

// ReadInput reads the file of a saved fault. What is malformed is an error; nothing is allocated
// beyond what the file holds.
func ReadInput(file []byte) (*Input, error) {
	head := len(inputMagic) + 4
	if len(file) < head || string(file[:len(inputMagic)]) != inputMagic {
		return nil, errors.New("this is not a saved fault of a policy")
	}
	if v := binary.LittleEndian.Uint32(file[len(inputMagic):]); v != inputVersion {
		return nil, fmt.Errorf("the saved fault has format %d; this engine reads %d", v,
			inputVersion)
	}
	packed, err := gzip.NewReader(bytes.NewReader(file[head:]))
	if err != nil {
		return nil, fmt.Errorf("the saved fault: %w", err)
	}
	var parts [3][]byte
	for i, most := range []int64{inputAboutMost, inputMemoryMost, inputEntriesMost} {
		if parts[i], err = inputPart(packed, most); err != nil {
			return nil, fmt.Errorf("the saved fault, part %d: %w", i+1, err)
		}
	}
	if _, err := packed.Read(make([]byte, 1)); err != io.EOF {
		return nil, errors.New("the saved fault: there is something behind its end")
	}
	in := &Input{entries: parts[2]}
	if err := json.Unmarshal(parts[0], &in.InputAbout); err != nil {
		return nil, fmt.Errorf("the saved fault: %w", err)
	}
	if in.Checkpoint != nil {
		in.base = in.Checkpoint
		in.base.memory = parts[1]
	}
	if err := in.check(len(parts[1])); err != nil {
		return nil, fmt.Errorf("the saved fault: %w", err)
	}
	return in, nil
}

// inputPart reads one part behind its length.
func inputPart(r io.Reader, most int64) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("its length: %w", err)
	}
	n := int64(binary.LittleEndian.Uint32(size[:]))
	if n > most {
		return nil, fmt.Errorf("%d bytes; at most %d are read", n, most)
	}
	var part bytes.Buffer
	if _, err := io.CopyN(&part, r, n); err != nil {
		return nil, fmt.Errorf("%d bytes: %w", n, err)
	}
	return part.Bytes(), nil
}

// check judges what a file says.
func (in *Input) check(memory int) error {
	within := func(n int) bool { return n > 0 && n <= inputTableMost }
	switch {
	case !within(in.Slots) || !within(in.Decisions):
		return fmt.Errorf("a table of %d slots and %d decisions", in.Slots, in.Decisions)
	case in.MemoryPages <= 0 || in.MemoryPages > MaxMemoryPages:
		return fmt.Errorf("a limit of %d memory pages", in.MemoryPages)
	case in.InitFuel <= 0 || in.Fuel < 0 || in.Calibrated < 0:
		return errors.New("its limits of fuel are malformed")
	case in.base == nil && memory != 0,
		in.base != nil && (in.base.Pages > in.MemoryPages || memory != in.base.Pages*pageBytes):
		return errors.New("its memory is not as large as it says")
	case in.base != nil && len(in.base.Tenants) > tenantRows*abi.TenantSize:
		return errors.New("its tenants are malformed")
	}
	if _, err := in.answer(); err != nil {
		return err
	}
	steps := 0
	r := entryReader{data: in.entries, in: in}
	for len(r.data) > 0 {
		e, err := r.next()
		if err != nil {
			return err
		}
		if e.kind == entryStep {
			steps++
		}
	}
	if steps == 0 {
		return errors.New("it holds no step")
	}
	return nil
}

// answer is the decisions that the module gave.
func (in *Input) answer() ([]abi.Decision, error) {
	raw, err := base64.StdEncoding.DecodeString(in.Answer)
	if err != nil || len(raw)%abi.DecisionSize != 0 || len(raw)/abi.DecisionSize > in.Decisions {
		return nil, errors.New("its answer is malformed")
	}
	var out []abi.Decision
	for ; len(raw) > 0; raw = raw[abi.DecisionSize:] {
		var d abi.Decision
		if err := d.Decode(raw); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}
