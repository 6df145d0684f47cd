package authortools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/abi/fields"
)

// Case is one [[case]] of a test file: settings, and one or more steps.
type Case struct {
	Name   string
	Config map[string]any
	Step
	Then []Step // The same copy of the module decides them, one after the other.

	file string
	line int // where the case begins
	text []string
}

// Step is a table and what must be decided on it. Whatever is expected, the rules of the ABI must
// hold.
type Step struct {
	After   string             // time since the step before
	Header  map[string]int64   // fields that are not as usual
	Records []map[string]any   // the whole table, by slot; an empty one is a free slot
	Tenants []map[string]int64 // the tenant table, by index; weight_milli is 1000 unless given
	Peers   []map[string]int64 // the peer table, from index 1; state is 1 unless given

	Order     *[]uint64 // ids of the requests that run, in order
	Plan      *[]Planned
	MaxTokens *uint64  `toml:"max_tokens"` // sum over the prompts that run
	Never     []uint64 // ids that do not run
}

// Planned is an expected decision: a run, unless an action is named.
type Planned struct {
	ID     uint64
	Tokens *uint32
	Action string
}

// ReadCases reads all test files of a policy, tests/*.toml, or those that are named.
func ReadCases(dir string, files ...string) ([]*Case, error) {
	if len(files) == 0 {
		found, err := filepath.Glob(filepath.Join(dir, "tests", "*.toml"))
		if err != nil {
			return nil, err
		}
		slices.Sort(found)
		files = found
	}
	var all []*Case
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		cases, err := ParseCases(file, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, cases...)
	}
	return all, nil
}

// maxSteps bounds one case.
const maxSteps = 1000

// ParseCases reads the text of a test file. Unknown keys are errors.
func ParseCases(file, text string) ([]*Case, error) {
	var list struct{ Case []*Case }
	meta, err := toml.Decode(text, &list)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("%s: unknown key %s", file, extra[0])
	}
	lines, at := strings.Split(text, "\n"), 0
	for i, c := range list.Case {
		if c.Name == "" || len(c.Then) > maxSteps {
			return nil, fmt.Errorf("%s: case %d needs a name and at most %d steps", file, i+1,
				maxSteps)
		}
		for at < len(lines) && strings.TrimSpace(lines[at]) != "[[case]]" {
			at++
		}
		c.file, c.line, c.text = file, at, lines
		at++
		for n, step := range append([]Step{c.Step}, c.Then...) {
			if err := step.check(); err != nil {
				return nil, fmt.Errorf("%s: case %s, step %d: %w", file, c.Name, n+1, err)
			}
		}
	}
	return list.Case, nil
}

// where is the place of the n-th expectation of that key within the case, FILE:LINE:COLUMN.
func (c *Case) where(key string, n int) string {
	for i := c.line; i < len(c.text); i++ {
		line := c.text[i]
		if i > c.line && strings.TrimSpace(line) == "[[case]]" {
			break
		}
		if before, _, ok := strings.Cut(line, "="); ok && strings.TrimSpace(before) == key {
			if n--; n < 0 {
				return fmt.Sprintf("%s:%d:%d", c.file, i+1, strings.Index(line, key)+1)
			}
		}
	}
	return fmt.Sprintf("%s:%d:1", c.file, c.line+1)
}

// settings is the case's config as pol_init gets it.
func (c *Case) settings() ([]byte, error) {
	if c.Config == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(c.Config)
}

// start is the time at the first step: long after the engine's start, so that any age fits.
const start = time.Hour

// usual is the header of a case that says nothing else.
func usual() abi.Header {
	return abi.Header{
		NowNS: int64(start), Role: abi.RoleAll, PageTokens: 16, TokenBudget: 2048, ChunkMax: 512,
		ChunkAlign: 1, MaxSeqs: 64, MaxAdmit: 64, FreePages: 1 << 16, TotalPages: 1 << 16,
		KVBytesPerToken: 4096,
	}
}

func (s *Step) check() error {
	h := usual()
	if _, err := s.after(); err != nil {
		return err
	}
	if err := s.header(&h); err != nil {
		return err
	}
	if _, _, err := s.tables(); err != nil {
		return err
	}
	_, err := s.table(h.NowNS)
	return err
}

// tables makes the tenant and the peer table; nil where the case has none.
func (s *Step) tables() ([]abi.Tenant, []abi.Peer, error) {
	var tenants []abi.Tenant
	for i, given := range s.Tenants {
		t := abi.Tenant{Index: uint32(i), WeightMilli: 1000}
		if err := set(&t, given); err != nil {
			return nil, nil, fmt.Errorf("tenant %d: %w", i, err)
		}
		tenants = append(tenants, t)
	}
	var peers []abi.Peer
	for i, given := range s.Peers {
		p := abi.Peer{Index: uint32(i + 1), State: 1}
		if err := set(&p, given); err != nil {
			return nil, nil, fmt.Errorf("peer %d: %w", i+1, err)
		}
		peers = append(peers, p)
	}
	return tenants, peers, nil
}

// set gives fields of a record their values.
func set[T any](record *T, given map[string]int64) error {
	for name, value := range given {
		f, ok := fields.Find[T](name)
		if !ok || !fields.Set(record, f, value) {
			return fmt.Errorf("there is no field %s, or %d does not fit it", name, value)
		}
	}
	return nil
}

func (s *Step) after() (time.Duration, error) {
	if s.After == "" {
		return 0, nil
	}
	return time.ParseDuration(s.After)
}

// header sets what the case says of the header.
func (s *Step) header(h *abi.Header) error {
	if err := set(h, s.Header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	return nil
}

// table makes the records.
func (s *Step) table(now int64) ([]abi.Record, error) {
	records := make([]abi.Record, len(s.Records))
	ids := map[uint64]int{}
	for slot, given := range s.Records {
		if len(given) == 0 {
			continue
		}
		r := abi.Record{ID: uint64(slot + 1), ArrivalNS: now, State: abi.StateLive, MaxNew: 100}
		if err := fill(&r, given, now); err != nil {
			return nil, fmt.Errorf("record %d: %w", slot+1, err)
		}
		if other, twice := ids[r.ID]; twice {
			return nil, fmt.Errorf("records %d and %d have one id, %d", other+1, slot+1, r.ID)
		}
		ids[r.ID] = slot
		records[slot] = r
	}
	return records, nil
}

// fill gives a record what a case says of it.
func fill(r *abi.Record, given map[string]any, now int64) error {
	remaining := int64(100)
	for name, value := range given {
		n, isNumber := value.(int64)
		text, isText := value.(string)
		f, known := fields.Find[abi.Record](name)
		switch {
		case name == "remaining" && isNumber && n >= 0 && n < 1<<32:
			remaining = n
		case name == "state" && isText:
			state, ok := states()[text]
			if !ok {
				return fmt.Errorf("state %q: want waiting, prefilling, decoding or preempted", text)
			}
			r.State = state
		case (name == "age" || name == "deadline") && isText:
			d, err := time.ParseDuration(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if name == "age" {
				r.ArrivalNS = now - int64(d)
			} else {
				r.DeadlineNS = now + int64(d)
			}
		case !known:
			return fmt.Errorf("there is no field %s", name)
		case !isNumber || !fields.Set(r, f, n):
			return fmt.Errorf("%s: %v does not fit", name, value)
		}
	}
	complete(r, given, uint32(remaining))
	return nil
}

// complete fills in what a case leaves open, so that the record is as an engine would show it.
func complete(r *abi.Record, given map[string]any, remaining uint32) {
	open := func(name string) bool { _, is := given[name]; return !is }
	if r.State&abi.StateDecoding == 0 && open("remaining_prefill") {
		r.RemainingPrefill = remaining
	}
	if open("prompt_tokens") {
		r.PromptTokens = max(r.RemainingPrefill, 1)
	}
	if r.State&abi.StateRunning != 0 && open("pages_held") {
		r.PagesHeld = (r.PromptTokens-min(r.PromptTokens, r.RemainingPrefill))/16 + 1
	}
	if r.State&abi.StateDecoding != 0 && open("generated") {
		r.Generated = 1
	}
	if r.RemainingPrefill > 0 && open("pages_needed") {
		r.PagesNeeded = r.RemainingPrefill/16 + 1
	}
}

// states are the words for a record's state.
func states() map[string]uint32 {
	return map[string]uint32{
		"waiting":    abi.StateLive,
		"prefilling": abi.StateLive | abi.StateRunning,
		"decoding":   abi.StateLive | abi.StateRunning | abi.StateDecoding,
		"preempted":  abi.StateLive | abi.StatePreempted,
	}
}
