package transfer

import "fmt"

// Reason says why a transfer was refused or ended. Its numbers are on the wire.
type Reason uint8

// The reasons. A frame that carries another number is read as Malformed.
const (
	// Malformed: bytes that are no frame, or a frame that does not belong here.
	Malformed Reason = 1 + iota
	// InvalidMetadata: the metadata string is not one that this receiver made, or does not fit.
	InvalidMetadata
	// NotFound: the lease is unknown, expired, released, delivered, or of another token or epoch.
	NotFound
	// Incompatible: the ends differ in model, weights, layout or protocol; the detail names each.
	Incompatible
	// Busy: the lease has a live writer already, or no room is left to wait in.
	Busy
	// Checksum: a frame arrived damaged.
	Checksum
	// OutOfPlace: a slot outside the lease, a second write of one, or a slot missing at a seal.
	OutOfPlace
	// Digest: both ends do not hold the same keys and values.
	Digest
	// Cancelled: one end gave the transfer up.
	Cancelled
	// Timeout: nothing was heard from the peer for Options.Timeout.
	Timeout
	// Reset: the connection was closed or reset, or could not be made.
	Reset
	// PageFault: the pages could not be read or written.
	PageFault
)

// code and label of each reason; code is the API's error code, label the metrics'.
type reasonText struct{ name, code, label string }

func (r Reason) text() reasonText {
	switch r {
	case InvalidMetadata:
		return reasonText{"invalid metadata", "invalid_metadata", "refused"}
	case NotFound:
		return reasonText{"reservation not found", "reservation_not_found", "lease"}
	case Incompatible:
		return reasonText{"incompatible instance", "incompatible_instance", "incompatible"}
	case Busy:
		return reasonText{"reservation busy", "request_id_in_use", "refused"}
	case Checksum:
		return reasonText{"damaged frame", "kv_transfer_failed", "digest"}
	case OutOfPlace:
		return reasonText{"slot out of place", "kv_transfer_failed", "refused"}
	case Digest:
		return reasonText{"digest differs", "kv_transfer_failed", "digest"}
	case Cancelled:
		return reasonText{"cancelled", "kv_transfer_failed", "cancelled"}
	case Timeout:
		return reasonText{"timeout", "kv_transfer_failed", "timeout"}
	case Reset:
		return reasonText{"connection lost", "kv_transfer_failed", "reset"}
	case PageFault:
		return reasonText{"page fault", "kv_transfer_failed", "refused"}
	}
	return reasonText{"malformed frame", "kv_transfer_failed", "refused"}
}

// String is the reason in words.
func (r Reason) String() string { return r.text().name }

// Code is the error code of the HTTP answer: invalid_metadata (400), reservation_not_found (404),
// incompatible_instance or request_id_in_use (409), kv_transfer_failed (503).
func (r Reason) Code() string { return r.text().code }

// Label is the reason as the metric engine_transfer_failures_total counts it.
func (r Reason) Label() string { return r.text().label }

// Error is a refused or failed transfer. Detail says what was wrong, with the numbers.
type Error struct {
	Reason Reason
	Detail string
	// Remote is true when the peer found the fault and told us.
	Remote bool
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Reason.String()
	}
	return e.Reason.String() + ": " + e.Detail
}

func fault(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Detail: fmt.Sprintf(format, args...)}
}
