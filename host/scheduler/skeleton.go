package scheduler

import "time"

// Scheduler is the state of all sequences of one engine.
type Scheduler struct{}

// New returns an empty scheduler. A nil policy means the built-in one.
func New(o Options, policy Policy) (*Scheduler, error) { panic("not built") }

// SetPolicy makes another policy decide from the next step on; it is shown every live slot.
func (s *Scheduler) SetPolicy(policy Policy) { panic("not built") }

// SetLimits changes the numbers from the next step on. An error leaves them as they were.
func (s *Scheduler) SetLimits(l Limits) error { panic("not built") }

// SetDraining tells policies that no new requests come.
func (s *Scheduler) SetDraining(draining bool) { panic("not built") }

// Submit queues a request, or refuses it: ErrQueueFull, ErrTooLong, ErrWindow, ErrEmptyPrompt,
// ErrMaxNew, ErrDuplicate, ErrPinTooLarge. What is queued fits an empty cache.
func (s *Scheduler) Submit(r Request) error { panic("not built") }

// Work reports whether Plan could have something to do: a sequence waits, prefills or decodes.
func (s *Scheduler) Work() bool { panic("not built") }

// Plan decides the next step and reserves its pages. The policy is asked at most once.
func (s *Scheduler) Plan(now time.Duration, costs StepCosts) *Plan { panic("not built") }

// Commit applies a plan that ran: sampled[k] is the token of plan.Samples[k]. Remote sends whose
// last chunk this was are finished; their pages stay pinned until SendReleased.
func (s *Scheduler) Commit(p *Plan, sampled []int32, now time.Duration) { panic("not built") }

// Abandon undoes a plan whose run failed: nothing of it counts as computed, its grants are void and
// wait again.
func (s *Scheduler) Abandon(p *Plan) { panic("not built") }

// Finish ends a sequence: a decoding one that has its last token, or a delivered one that nobody
// starts. Its pages stay in the prefix cache, evictable.
func (s *Scheduler) Finish(id SequenceID, reason Reason) error { panic("not built") }

// Cancel ends a sequence in any state. Pages that nobody else references are free at once, except:
// pages being sent stay pinned until SendReleased, pages being written go to quarantine until
// Release; held reports that one of the two is still to come.
func (s *Scheduler) Cancel(id SequenceID) (held bool, err error) { panic("not built") }

// SendReleased says that the receiver acknowledged a remote send or was fenced: nobody reads the
// pages of this finished sequence any more.
func (s *Scheduler) SendReleased(id SequenceID) error { panic("not built") }

// Receiving says that a writer opened the reservation: prepared → receiving.
func (s *Scheduler) Receiving(id SequenceID) error { panic("not built") }

// Delivered says that all KV before end is here and that the writer has gone. Only now do these
// tokens enter the prefix cache. end may be short of what was prepared.
func (s *Scheduler) Delivered(id SequenceID, end int) error { panic("not built") }

// StartGenerate lets a prepared or received sequence go on by itself: → waiting, for its rest. begin
// past what is here is ErrNotDelivered, as is a writer that has not delivered; begin short of what
// was prepared leaves the gap to be computed here.
func (s *Scheduler) StartGenerate(id SequenceID, begin int) error { panic("not built") }

// Recompute gives up what a failed transfer was to bring: the sequence waits as a local request and
// computes everything itself. With a live writer its reserved pages go to quarantine until Release;
// held reports that.
func (s *Scheduler) Recompute(id SequenceID) (held bool, err error) { panic("not built") }

// Quarantine ends a reservation whose writer may still be live: its pages belong to nobody until
// Release.
func (s *Scheduler) Quarantine(id SequenceID) error { panic("not built") }

// Release says that the writer of a quarantined reservation is fenced: its pages are free.
func (s *Scheduler) Release(id SequenceID) error { panic("not built") }

// Reset forgets the prefix cache, pinned prompts included, as far as no sequence references it.
func (s *Scheduler) Reset() { panic("not built") }

// State returns where a sequence stands; ok is false when there is none.
func (s *Scheduler) State(id SequenceID) (state State, ok bool) { panic("not built") }

// Info describes a sequence.
type Info struct {
	State State
	Kind  Kind
	// PromptTokens counts the prompt; for a remote send only up to End.
	PromptTokens int
	// Cached is how many prompt tokens the prefix cache had at its first admission, Computed how many
	// positions have KV now, Generated how many tokens were sampled.
	Cached, Computed, Generated int
	Pages, Preempted            int
	FirstToken                  time.Duration
}

// Info returns what is known of a sequence; ok is false when there is none.
func (s *Scheduler) Info(id SequenceID) (info Info, ok bool) { panic("not built") }

// Stats are the scheduler's gauges and counters.
type Stats struct {
	// States counts the sequences in each state; Finished are those that a transfer still reads.
	States [States]int
	// Moves counts the moves [from][to] ever made.
	Moves [States][States]uint64
	// Pages: free, referenced by sequences, evictable, pinned in the tree but unreferenced, in
	// quarantine; they sum to Total.
	Free, Held, Evictable, Pinned, Quarantined, Total int
	// Evicted counts pages ever evicted, Preempted sequences ever preempted, MatchedTokens and
	// QueriedTokens the prompt tokens found in, and asked of, the prefix cache at admissions.
	Evicted, Preempted           uint64
	MatchedTokens, QueriedTokens uint64
}

// Stats returns the gauges and counters.
func (s *Scheduler) Stats() Stats { panic("not built") }

// Leaked counts pages that no owner accounts for. It must be 0.
func (s *Scheduler) Leaked() int { panic("not built") }

// Check verifies every invariant of the package and names the first that is broken.
func (s *Scheduler) Check() error { panic("not built") }
