package sim

// Mark is a path that is rarely taken. A run over many seeds that never took one of them has not
// tested what it says.
type Mark uint8

// The marks.
const (
	Completed Mark = iota
	Delivered
	LeaseExpired
	QuarantineEntered
	QuarantineLeft
	ResumedBySecondSender
	StaleMetadataRefused
	FrameDamaged
	DamageRefused
	PreemptedDuringSend
	PreemptedAndResumed
	CancelledWhileQueued
	CancelledWhilePreparing
	CancelledWhileSending
	CancelledWhileStarting
	CancelledWhileStreaming
	GapPrefilled
	NothingReserved
	SendSkipped
	TailTakenOver
	TailCopied
	WindowSlid
	HollowMatched
	PolicyFellBack
	PolicySwapped
	DeviceFailed
	FailedOverAfterDevice
	DecodeDied
	PrefillDied
	RetriedElsewhere
	LoopbackUsed
	Recomputed
	ReleasedUnderWriter
	StartedBeforeDelivery
	DeliveredNeverStarted
	MatchedOnReceiver
	MatchedOnSender
	WriterQueued
	TransferTimedOut
	ConnectionLost
	QueueFull
	TooLong
	Pinned
	Evicted
	CacheReset
	LimitsChanged
	SlowReader
	SendStarved
	Forced
	Penalties
	EndedByToken
	WaitedInVain
	Shed
	PreemptedByPolicy
	WholeItems
	ItemsMatched
	ResumedElsewhere
	MessageLost
	StreamSilent
	StoppedByReader
	Formed
	LeasesUsedUp
	Drained
	DraftRun
	Meddled
	DeliveredByTwo
	PreemptedByDecode
	Committed
	Branched
	Left
	marks
)

func (m Mark) String() string {
	return [...]string{"completed", "delivered", "lease expired", "quarantine entered",
		"quarantine left", "resumed from a sealed chunk by another sender",
		"stale metadata refused", "frame damaged", "damaged frame refused",
		"preempted beside a send", "preempted and resumed", "cancelled while queued",
		"cancelled while preparing", "cancelled while sending", "cancelled while starting",
		"cancelled while streaming", "gap prefilled by the receiver", "nothing reserved",
		"remote send skipped", "prefix tail taken over", "prefix tail copied", "window slid",
		"hollow page matched across", "policy fell back", "policy swapped", "device out of memory",
		"request tried again after that", "decode instance died while written to",
		"prefill instance died while sending", "tried on another instance", "loopback",
		"recomputed by the receiver", "released under a writer", "started before delivery",
		"delivered and never started", "prefix matched on the receiver",
		"prefix matched on the sender", "writer waited for a seat", "transfer timed out",
		"connection lost", "queue full", "too long", "prompt pinned", "page evicted",
		"cache reset", "limits changed", "slow reader", "send starved of pages",
		"starving request put first", "penalties applied", "ended by its token",
		"waited too long for pages", "shed by a policy",
		"preempted by a policy", "items of vectors", "items of vectors matched",
		"went on elsewhere behind its tokens",
		"message to an instance lost", "stream fell silent", "stopped by its reader",
		"ended by its form", "no lease left", "drained", "draft run", "meddled with",
		"delivered by two senders", "preempted by a decode",
		"committed", "second answer to one prompt", "out of the list"}[m]
}

// AllMarks lists the marks.
func AllMarks() []Mark {
	all := make([]Mark, marks)
	for m := range all {
		all[m] = Mark(m)
	}
	return all
}

// Counts is how often each mark was reached.
type Counts [marks]int

// Add adds the counts of another run.
func (c *Counts) Add(other *Counts) {
	for m, n := range other {
		c[m] += n
	}
}
