package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/kvrelay/engine/host/kvcache"
	"github.com/kvrelay/engine/host/prefix"
)

// Commit applies a plan that ran: sampled[k] is the token of plan.Samples[k]. Remote sends whose
// last chunk this was are finished; their pages stay pinned until SendReleased.
func (s *Scheduler) Commit(p *Plan, sampled []int32, now time.Duration) {
	if p != &s.plan || p.Step != s.step || len(sampled) != len(p.Samples) {
		panic(fmt.Sprintf("scheduler: commit of step %d with %d tokens for %d rows, the "+
			"plan is that of %d",
			p.Step, len(sampled), len(p.Samples), s.step))
	}
	s.releaseTails()
	for _, chunk := range p.Chunks {
		s.advance(s.byID[chunk.ID], chunk)
	}
	for k, id := range p.Samples {
		q := s.byID[id]
		q.tokens = append(q.tokens, sampled[k])
		q.lastToken = now
		if q.firstToken == 0 {
			q.firstToken = now
			s.turnTo(q, moment{what: FirstToken, from: now})
		}
		if q.state == Prefilling {
			s.move(q, Decoding)
		}
		s.touch(q)
	}
	s.stepDone(p, now)
	s.Tick(now)
}

// advance counts a chunk as computed and makes it matchable.
func (s *Scheduler) advance(q *sequence, chunk Chunk) {
	q.computed = chunk.End
	q.service += uint64(chunk.End - chunk.Start)
	s.tenants[q.tenant].ServiceTokens += uint64(chunk.End - chunk.Start)
	pin := q.pin && q.computed >= q.prompt
	if !pin {
		s.slide(q)
	}
	s.publish(q, !q.sending)
	if pin {
		s.pinNow(q)
		s.slide(q)
	}
	if q.kind == RemoteSend {
		q.announced = true
		if q.computed == q.end {
			s.finished(q, ReasonStop)
			s.leave(q)
		}
	}
	s.touch(q)
}

// Abandon undoes a plan whose run failed: nothing of it counts as computed, its grants are void and
// wait again.
func (s *Scheduler) Abandon(p *Plan) {
	for _, q := range s.copied { // The copied part of the tail page never came to be.
		s.rewind(q, q.matched)
		switch {
		case !q.sending:
			s.keepPages(q, s.pagesFor(q.computed))
		case s.gaps(q): // Somebody may be reading its pages, so that no others take their place.
			p.Failed = append(p.Failed, q.id)
			s.finished(q, ReasonError)
			s.end(q, prefix.Drop)
		}
	}
	s.releaseTails()
	for _, grant := range p.Grants {
		q := s.byID[grant.ID]
		s.giveBack(q, prefix.Keep)
		s.unhold(q)
		s.move(q, Waiting)
		s.enqueue(q)
	}
	s.stepDone(p, s.now)
}

// gaps reports whether a table lacks pages that are to be computed.
func (s *Scheduler) gaps(q *sequence) bool {
	from := q.computed / s.options.PageSize
	for i := range s.models {
		if pages := q.tables[i].pages; slices.Contains(pages[min(from, len(pages)):],
			kvcache.None) {
			return true
		}
	}
	return false
}

func (s *Scheduler) releaseTails() {
	for _, m := range s.models {
		if len(m.tails) > 0 {
			m.cache.Release(prefix.Path{}, m.tails, prefix.Keep, 0)
			m.tails = m.tails[:0]
		}
	}
	clear(s.copied)
	s.copied = s.copied[:0]
}
