package generation

import (
	"errors"
	"fmt"
	"time"
)

// Code names a failure. The API maps each to one HTTP status and type.
type Code string

// The failures that a source reports.
const (
	CodeInvalidValue        Code = "invalid_value"
	CodeContextLength       Code = "context_length_exceeded"
	CodeInvalidWindow       Code = "invalid_window"
	CodeInvalidMetadata     Code = "invalid_metadata"
	CodeReservationNotFound Code = "reservation_not_found"
	CodeIDInUse             Code = "request_id_in_use"
	CodeNotDelivered        Code = "not_delivered"
	CodeIncompatible        Code = "incompatible_instance"
	CodeQueueFull           Code = "queue_full"
	CodeQueueTimeout        Code = "queue_timeout"
	CodeModelLoading        Code = "model_loading"
	CodeDraining            Code = "draining"
	CodeNoDecode            Code = "no_healthy_decode"
	CodeShed                Code = "request_shed"
	CodeDeviceLost          Code = "device_lost"
	CodeTransferFailed      Code = "kv_transfer_failed"
	CodeInternal            Code = "internal_error"
	CodeCancelled           Code = "client_disconnected"
)

// Error is a refusal or a failure that the client is told.
type Error struct {
	Code    Code
	Message string
	// Param names the field of the request that is at fault; "" when none is.
	Param string
	// RetryAfter is when trying again may help, where the API tells that; 0 is soon.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error. What is not one is a fault of ours: internal_error.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
