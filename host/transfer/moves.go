package transfer

// senderMoves is all that a sender does. Whatever is missing breaks the protocol: a frame is then
// treated as bad, anything else is a broken invariant of ours.
var senderMoves = []move{
	{asking, onAccept, writing, doOpened, "and from where to send"},
	{asking, onRefuse, failed, doFail | doHangUp, "nothing was sent but the opening frame"},
	{asking, onBeat, asking, 0, "waits for room at the receiver"},
	{asking, onCancel, failed, doCancelled | doFail | doHangUp, ""},
	{asking, onGiveUp, cancelling, doCancel, ""},
	{asking, onBad, failed, doFail | doHangUp, ""},
	{asking, onTimeout, failed, doFail | doHangUp, ""},
	{asking, onClosed, failed, doFail, ""},

	{writing, onAck, writing, 0, "a chunk is safe"},
	{writing, onTaken, writing, 0, "room in the lane"},
	{writing, onBeat, writing, 0, ""},
	{writing, onFinish, sealing, 0, "the last seal was said"},
	{writing, onRefuse, failed, doFail | doHangUp, ""},
	{writing, onCancel, failed, doCancelled | doFail | doHangUp, ""},
	{writing, onGiveUp, cancelling, doCancel, ""},
	{writing, onBad, failed, doFail | doHangUp, ""},
	{writing, onTimeout, failed, doFail | doHangUp, ""},
	{writing, onClosed, failed, doFail, ""},

	{sealing, onAck, sealing, 0, "a chunk is safe"},
	{sealing, onLastAck, done, doDone | doHangUp, "delivered"},
	{sealing, onTaken, sealing, 0, ""},
	{sealing, onBeat, sealing, 0, ""},
	{sealing, onRefuse, failed, doFail | doHangUp, ""},
	{sealing, onCancel, failed, doCancelled | doFail | doHangUp, ""},
	{sealing, onGiveUp, cancelling, doCancel, ""},
	{sealing, onBad, failed, doFail | doHangUp, ""},
	{sealing, onTimeout, failed, doFail | doHangUp, ""},
	{sealing, onClosed, failed, doFail, ""},

	{cancelling, onAccept, cancelling, 0, "crossed the cancel"},
	{cancelling, onAck, cancelling, 0, "crossed the cancel"},
	{cancelling, onLastAck, cancelling, 0, "crossed the cancel: delivered, but not wanted"},
	{cancelling, onTaken, cancelling, 0, "crossed the cancel"},
	{cancelling, onBeat, cancelling, 0, ""},
	{cancelling, onCancelled, failed, doFail | doHangUp, ""},
	{cancelling, onCancel, failed, doCancelled | doFail | doHangUp, "both gave up"},
	{cancelling, onRefuse, failed, doFail | doHangUp, ""},
	{cancelling, onBad, failed, doFail | doHangUp, ""},
	{cancelling, onTimeout, failed, doFail | doHangUp, ""},
	{cancelling, onClosed, failed, doFail, ""},
}

// receiverMoves is all that the receiver's end of a connection does.
var receiverMoves = []move{
	{expecting, onOpen, writing, doAttach | doSeat | doAccept, ""},
	{expecting, onNearby, expecting, doWay, "the time for the opening frame runs on"},
	{expecting, onFull, queued, 0, "attached; waits for a seat"},
	{expecting, onBad, refused, doRefuse, "the lease, if there is one, is untouched"},
	{expecting, onTimeout, closed, doHangUp, "a slow opener"},
	{expecting, onClosed, closed, 0, ""},

	{queued, onRoom, writing, doAccept, "took a seat"},
	{queued, onBeat, queued, 0, ""},
	{queued, onCancel, closed, doCancelled | doFail | doFence | doHangUp, ""},
	{queued, onRelease, cancelling, doCancel, ""},
	{queued, onBad, refused, doRefuse | doFail, ""},
	{queued, onTimeout, refused, doRefuse | doFail, ""},
	{queued, onClosed, closed, doFail | doFence, ""},

	{writing, onData, writing, doWrite, ""},
	{writing, onPlaced, writing, doWrite | doTaken, "out of the lane"},
	{writing, onSeal, writing, doKeep | doAck, ""},
	{writing, onLastSeal, sealed, doDeliver | doAck, ""},
	{writing, onBeat, writing, 0, ""},
	{writing, onCancel, closed, doCancelled | doFail | doFence | doHangUp, ""},
	{writing, onRelease, cancelling, doCancel, ""},
	{writing, onBad, refused, doRefuse | doFail, ""},
	{writing, onTimeout, refused, doRefuse | doFail, ""},
	{writing, onClosed, closed, doFail | doFence, ""},

	{sealed, onBeat, sealed, 0, ""},
	{sealed, onCancel, closed, doCancelled | doFence | doHangUp, "the delivery stands"},
	{sealed, onBad, closed, doFence | doHangUp, ""},
	{sealed, onTimeout, closed, doFence | doHangUp, ""},
	{sealed, onClosed, closed, doFence, ""},

	{refused, onRelease, refused, 0, ""},
	{refused, onTimeout, closed, doFence | doHangUp, "the refusal has arrived, or never will"},
	{refused, onClosed, closed, doFence, ""},

	{cancelling, onData, cancelling, 0, "throws it away"},
	{cancelling, onPlaced, cancelling, 0, "leaves it in the lane"},
	{cancelling, onSeal, cancelling, 0, "throws it away"},
	{cancelling, onLastSeal, cancelling, 0, "throws it away"},
	{cancelling, onBeat, cancelling, 0, ""},
	{cancelling, onRelease, cancelling, 0, ""},
	{cancelling, onCancelled, closed, doFence | doHangUp, ""},
	{cancelling, onCancel, closed, doCancelled | doFence | doHangUp, "both gave up"},
	{cancelling, onBad, closed, doFence | doHangUp, ""},
	{cancelling, onTimeout, closed, doFence | doHangUp, ""},
	{cancelling, onClosed, closed, doFence, ""},
}

// leaseMoves is all that happens to a lease. Only in writing is a frame let into its pages. Seal,
// last seal and failed come from its writer; what has no line here is refused, or means nothing.
var leaseMoves = []move{
	{granted, onOpen, writing, 0, "no time runs while it has a writer"},
	{granted, onRelease, gone, doFree, ""},
	{granted, onExpire, gone, doFree | doExpire, ""},

	{writing, onSeal, writing, doKeep, ""},
	{writing, onLastSeal, sealed, doDeliver, "the seat is free; the lease's time starts anew"},
	{writing, onFail, writing, doFail, "its connection is still there"},
	{writing, onFenced, granted, 0, "for another writer; the lease's time starts anew"},
	{writing, onRelease, quarantined, 0, "nobody gets the pages yet"},

	{quarantined, onRelease, quarantined, 0, ""},
	{quarantined, onFenced, gone, doFree | doFenced, ""},

	{sealed, onFenced, sealed, 0, ""},
	{sealed, onRelease, gone, doFree, ""},
	{sealed, onExpire, gone, doFree | doExpire, ""},
}

var (
	senderTable   = index(senderMoves)
	receiverTable = index(receiverMoves)
	leaseTable    = index(leaseMoves)
)
