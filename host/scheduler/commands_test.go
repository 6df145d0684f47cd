package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvrelay/engine/abi"
	"github.com/kvrelay/engine/host/kvcache"
)

// do runs one command of a script and returns what it prints.
func (sc *script) do(verb string, words []string) string {
	switch verb {
	case "options":
		return sc.options(words)
	case "text":
		return sc.text(words)
	case "mixed":
		return sc.mixed(words)
	case "local":
		return sc.submit(Local, words)
	case "send":
		return sc.submit(RemoteSend, words)
	case "prepare":
		return sc.submit(PrepareReceive, words)
	case "step":
		return sc.step()
	case "steps":
		return sc.steps(words[0])
	case "pages":
		return sc.pool()
	case "peek":
		return sc.peek(words[0])
	case "state":
		return sc.state(words[0])
	case "table":
		return sc.held(words[0], 0)
	case "draft":
		return sc.held(words[0], 1)
	case "peak":
		return fmt.Sprintf("%d pages", sc.peak)
	case "hollow":
		return fmt.Sprint(sc.s.models[0].cache.Counts().Hollow)
	case "age":
		n, _ := strconv.Atoi(words[0])
		sc.now += time.Duration(n)
		return ""
	case "reset":
		sc.s.Reset()
		return ""
	case "budget":
		l := sc.s.limits
		l.TokenBudget, _ = strconv.Atoi(words[0])
		if err := sc.s.SetLimits(l); err != nil {
			return err.Error()
		}
		return ""
	case "hog":
		return sc.hog(words[0])
	case "policy":
		sc.s.SetPolicy(named(words[0]))
		return ""
	}
	return sc.event(verb, words)
}

// event tells the scheduler that something happened to a sequence.
func (sc *script) event(verb string, words []string) string {
	id := sc.ids[words[0]]
	n := 0
	if len(words) > 1 {
		n, _ = strconv.Atoi(words[1])
	}
	held, err := false, error(nil)
	switch verb {
	case "finish":
		err = sc.s.Finish(id, ReasonStop)
	case "cancel":
		held, err = sc.s.Cancel(id)
	case "released":
		err = sc.s.SendReleased(id)
	case "receiving":
		err = sc.s.Receiving(id)
	case "delivered":
		q := sc.s.byID[id]
		if q != nil {
			for i, m := range append([]*fakeModel{sc.m}, sc.drafts...) {
				entries, pages := m.entries(q.tokens[:q.end]), q.tables[i].pages
				for at := q.matched; at < min(n, q.end); at++ {
					if pages[at/sc.o.PageSize] != kvcache.None {
						*m.at(pages, at) = entries[at]
					}
				}
			}
		}
		err = sc.s.Delivered(id, n)
	case "start":
		err = sc.s.StartGenerate(id, n)
	case "recompute":
		held, err = sc.s.Recompute(id)
	case "quarantine":
		err = sc.s.Quarantine(id)
	case "fenced":
		err = sc.s.Release(id)
	default:
		panic("unknown command " + verb)
	}
	switch {
	case err != nil:
		return err.Error()
	case held:
		return "held"
	}
	return ""
}

// steps runs many steps and prints only the last.
func (sc *script) steps(count string) string {
	n, _ := strconv.Atoi(count)
	last := ""
	for range n {
		last = sc.step()
	}
	return last
}

func (sc *script) state(name string) string {
	info, ok := sc.s.Info(sc.ids[name])
	if !ok {
		return "gone"
	}
	return fmt.Sprintf("%v, computed %d, pages %d, generated %d",
		info.State, info.Computed, info.Pages, info.Generated)
}

// hog makes all pages but so many unavailable, as remote sends that nobody has acknowledged do.
func (sc *script) hog(left string) string {
	n, _ := strconv.Atoi(left)
	limits := sc.s.limits
	big := limits
	big.TokenBudget, big.ChunkMax, big.MaxSeqs = 1<<20, 1<<20, 100
	if err := sc.s.SetLimits(big); err != nil {
		return err.Error()
	}
	pages := sc.s.Stats().Free - n
	tokens := pages * sc.o.PageSize
	sc.o.MaxModelLen = max(sc.o.MaxModelLen, tokens+2)
	sc.s.options.MaxModelLen = sc.o.MaxModelLen
	got := sc.submit(RemoteSend, strings.Fields(fmt.Sprintf("hog %d end=%d", tokens+1, tokens)))
	if got != "" {
		return got
	}
	sc.step()
	sc.s.limits = limits
	if free := sc.s.Stats().Free; free != n {
		return fmt.Sprintf("%d pages are free", free)
	}
	return ""
}

// named returns a policy of the scripts.
func named(name string) Policy {
	verb, argument, _ := strings.Cut(name, ":")
	switch verb {
	case "idle": // Lists nothing.
		return policyFunc(func(_ *abi.View, out []abi.Decision) ([]abi.Decision, error) {
			return out, nil
		})
	case "auto": // Lists everything, newest first, and leaves the lengths to the host.
		return policyFunc(func(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
			return listed(v, out, func(*abi.Record) uint32 { return abi.TokensAuto }), nil
		})
	case "chunks": // Lists everything, newest first, in chunks of a length.
		n, _ := strconv.Atoi(argument)
		return policyFunc(func(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
			return listed(v, out, func(r *abi.Record) uint32 {
				if r.State&abi.StateDecoding != 0 {
					return 1
				}
				return min(r.RemainingPrefill, uint32(n))
			}), nil
		})
	case "greedy": // Lists what prefills only, and asks for the whole budget for each.
		return policyFunc(func(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
			return listed(v, out, func(r *abi.Record) uint32 {
				return min(r.RemainingPrefill, v.Header.TokenBudget)
			}), nil
		})
	case "skip": // Skips every decode.
		return policyFunc(func(v *abi.View, out []abi.Decision) ([]abi.Decision, error) {
			for slot := range v.Records {
				if r := &v.Records[slot]; r.State&abi.StateDecoding != 0 {
					out = append(out, abi.Decision{
						Slot: uint32(slot), IDLow: uint32(r.ID), Action: abi.ActionSkip,
					})
				}
			}
			return out, nil
		})
	}
	return &FCFS{}
}

// listed appends a run for each live record, last slot first, for which tokens is not 0.
func listed(v *abi.View, out []abi.Decision, tokens func(*abi.Record) uint32) []abi.Decision {
	for slot := len(v.Records) - 1; slot >= 0; slot-- {
		r := &v.Records[slot]
		if n := tokens(r); r.State != 0 && n > 0 && len(out) < int(v.Header.DecisionsCap) {
			out = append(out, abi.Decision{Slot: uint32(slot), Tokens: n, IDLow: uint32(r.ID)})
		}
	}
	return out
}
