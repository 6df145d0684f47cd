package scheduler

import (
	"encoding/binary"
	"time"

	"github.com/kvrelay/engine/abi"
)

// header fills in the step's header, but for the addresses, which are the sandbox's.
func (s *Scheduler) header(costs StepCosts) abi.Header {
	l, t := &s.limits, &s.table
	free := s.Available()
	reserve := l.ReservePages + len(s.held)
	h := abi.Header{
		Magic: abi.Magic, Minor: abi.Minor, HeaderSize: abi.HeaderSize,
		RecordStride: abi.RecordSize, DecisionStride: abi.DecisionSize,
		Step: s.step, NowNS: int64(s.now), NSlots: uint32(t.high), NChanged: uint32(len(t.changed)),
		NWaiting: uint32(len(s.queue)), NRunning: uint32(len(s.held)),
		FreePages: uint32(free), TotalPages: uint32(s.options.Pages),
		PageTokens: uint32(s.options.PageSize), TokenBudget: uint32(l.TokenBudget),
		ChunkMax: uint32(l.ChunkMax), ChunkAlign: uint32(l.ChunkAlign), MaxSeqs: uint32(l.MaxSeqs),
		MaxAdmit:     uint32(min(l.MaxAdmit, max(l.MaxSeqs-len(s.held), 0))),
		ReservePages: uint32(reserve), DecisionsCap: uint32(l.MaxSeqs + l.MaxPreempt),
		Seed: stepSeed(s.options.Seed, s.step), Role: s.options.Role,
		LastStepUS:  uint32(costs.LastStep.Microseconds()),
		CostFixedUS: uint32(costs.Fixed.Microseconds()),
		CostTokenNS: uint32(costs.PerToken.Nanoseconds()), CostCtxPS: costs.PerContextTokenPS,
		SendBacklogBytes: uint64(max(costs.SendBacklogBytes, 0)),
		LinkBytesPerUS:   costs.LinkBytesPerUS,
		KVBytesPerToken:  uint32(s.options.KVBytesPerToken),
		DecodeTokens:     uint32(min(s.states[Decoding], l.TokenBudget)),
		DecodeDueNS:      int64(s.decodeDue()),
		NTenants:         uint32(len(s.tenants)), NPeers: uint32(len(costs.Peers)),
	}
	for _, flag := range []struct {
		on  bool
		bit uint32
	}{
		{t.resync, abi.FlagResync},
		{t.swapped, abi.FlagSwap},
		{free <= reserve, abi.FlagMemoryPressure},
		{s.draining, abi.FlagDraining},
	} {
		if flag.on {
			h.Flags |= flag.bit
		}
	}
	return h
}

// decodeDue is when the tightest running stream needs its next token; 0: none asks for any pace.
func (s *Scheduler) decodeDue() (due time.Duration) {
	for _, q := range s.held {
		if q.state != Decoding || q.tokenGap == 0 {
			continue
		}
		if at := q.lastToken + q.tokenGap; due == 0 || at < due {
			due = at
		}
	}
	return due
}

// prefixPages is how many first pages of a prompt are compared to tell prompts that start alike:
// one may hold nothing but what a chat template puts before every prompt.
const prefixPages = 4

// prefixHash is a number that prompts share whose first pages hold the same tokens, and the same
// items of vectors; 0 for those that are shorter than a page.
func (s *Scheduler) prefixHash(r *Request) uint64 {
	size := s.options.PageSize
	pages := min(len(r.Prompt)/size, prefixPages)
	if pages == 0 {
		return 0
	}
	x, end := uint64(pages), pages*size
	at := 0
	tokens := func(to int) {
		for _, token := range r.Prompt[at:max(at, to)] {
			x = stepSeed(x, uint64(uint32(token))+1)
		}
	}
	for i := range r.Embeds {
		e := &r.Embeds[i]
		if e.Start >= end {
			break
		}
		tokens(e.Start)
		x, at = stepSeed(x, binary.LittleEndian.Uint64(e.Digest[:])), e.End()
	}
	tokens(end)
	return max(x, 1)
}

// stepSeed mixes the configured seed with the step's number (the finalizer of SplitMix64).
func stepSeed(seed, step uint64) uint64 {
	x := seed + step*0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
