// Package openai is the wire of the OpenAI API and of the micro-serving calls: requests decoded
// with exact errors, responses, the table of errors, and event streams in both directions. It knows
// no engine and keeps no state.
package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Code names a failure on the wire.
type Code string

// The codes. Types and statuses stand in Situations.
const (
	CodeInvalidJSON          Code = "invalid_json"
	CodeInvalidType          Code = "invalid_type"
	CodeMissingField         Code = "missing_field"
	CodeInvalidValue         Code = "invalid_value"
	CodeContextLength        Code = "context_length_exceeded"
	CodeUnsupportedParameter Code = "unsupported_parameter"
	CodeUnsupportedContent   Code = "unsupported_content_type"
	CodeInvalidWindow        Code = "invalid_window"
	CodeInvalidMetadata      Code = "invalid_metadata"
	CodeInvalidJSONSchema    Code = "invalid_json_schema"
	CodeModelNotFound        Code = "model_not_found"
	CodeUnknownURL           Code = "unknown_url"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeReservationNotFound  Code = "reservation_not_found"
	CodeRequestIDInUse       Code = "request_id_in_use"
	CodeNotDelivered         Code = "not_delivered"
	CodeIncompatibleInstance Code = "incompatible_instance"
	CodeRequestTooLarge      Code = "request_too_large"
	CodeQueueFull            Code = "queue_full"
	CodeModelLoading         Code = "model_loading"
	CodeDraining             Code = "draining"
	CodeNoHealthyDecode      Code = "no_healthy_decode"
	CodeQueueTimeout         Code = "queue_timeout"
	CodeNoProgress           Code = "no_progress"
	CodeRequestShed          Code = "request_shed"
	CodePolicySetAside       Code = "policy_set_aside"
	CodeTooManyConnections   Code = "too_many_connections"
	CodeDeviceLost           Code = "device_lost"
	CodeKVTransferFailed     Code = "kv_transfer_failed"
	CodeInternal             Code = "internal_error"
	CodeClientDisconnected   Code = "client_disconnected"
	CodeInvalidAPIKey        Code = "invalid_api_key"
	CodeModelNotAllowed      Code = "model_not_allowed"
	CodeRateLimit            Code = "rate_limit_exceeded"
	CodeHeadersTooLarge      Code = "headers_too_large"
)

// Situation is a row of the error table.
type Situation struct {
	Code   Code
	Status int
	Type   string
	// RetryAfter says that the answer tells when to try again; NoRetry that trying again cannot
	// help although the status suggests it.
	RetryAfter, NoRetry bool
}

// Situations returns the error table.
func Situations() []Situation {
	const invalid, unavailable = "invalid_request_error", "service_unavailable_error"
	return []Situation{
		{Code: CodeInvalidJSON, Status: 400, Type: invalid},
		{Code: CodeInvalidType, Status: 400, Type: invalid},
		{Code: CodeMissingField, Status: 400, Type: invalid},
		{Code: CodeInvalidValue, Status: 400, Type: invalid},
		{Code: CodeContextLength, Status: 400, Type: invalid},
		{Code: CodeUnsupportedParameter, Status: 400, Type: invalid},
		{Code: CodeUnsupportedContent, Status: 400, Type: invalid},
		{Code: CodeInvalidWindow, Status: 400, Type: invalid},
		{Code: CodeInvalidMetadata, Status: 400, Type: invalid},
		{Code: CodeInvalidJSONSchema, Status: 400, Type: invalid},
		{Code: CodeInvalidAPIKey, Status: 401, Type: invalid},
		{Code: CodeModelNotAllowed, Status: 403, Type: "permission_error"},
		{Code: CodeModelNotFound, Status: 404, Type: invalid},
		{Code: CodeUnknownURL, Status: 404, Type: invalid},
		{Code: CodeReservationNotFound, Status: 404, Type: invalid},
		{Code: CodeMethodNotAllowed, Status: 405, Type: invalid},
		{Code: CodeRequestIDInUse, Status: 409, Type: invalid, NoRetry: true},
		{Code: CodeNotDelivered, Status: 409, Type: invalid, NoRetry: true},
		{Code: CodeIncompatibleInstance, Status: 409, Type: invalid, NoRetry: true},
		{Code: CodeRequestTooLarge, Status: 413, Type: invalid},
		{Code: CodeQueueFull, Status: 429, Type: "rate_limit_error", RetryAfter: true},
		{Code: CodeRateLimit, Status: 429, Type: "rate_limit_error", RetryAfter: true},
		{Code: CodeHeadersTooLarge, Status: 431, Type: invalid},
		{Code: CodeClientDisconnected, Status: 499, Type: "server_error"},
		{Code: CodeInternal, Status: 500, Type: "server_error"},
		{Code: CodeModelLoading, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeDraining, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeNoHealthyDecode, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeQueueTimeout, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeRequestShed, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodePolicySetAside, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeNoProgress, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeTooManyConnections, Status: 503, Type: unavailable, RetryAfter: true},
		{Code: CodeDeviceLost, Status: 503, Type: "server_error"},
		{Code: CodeKVTransferFailed, Status: 503, Type: "server_error"},
	}
}

// Lookup finds a code's row. A code that no row names is a fault of ours and has the row of
// internal_error.
func Lookup(code Code) Situation {
	var internal Situation
	for _, s := range Situations() {
		if s.Code == code {
			return s
		}
		if s.Code == CodeInternal {
			internal = s
		}
	}
	return internal
}

// Error is what a client is told. As JSON it is {"error":{"message","type","param","code"}}.
type Error struct {
	Code    Code
	Message string
	// Param is the path of the field at fault, such as messages[0].content; "" when none is.
	Param string
	// Reason says in a word why a micro-serving call failed; "" is left out.
	Reason string
	// RetryAfter is when to try again, where the table asks for it; 0 is a second.
	RetryAfter time.Duration
}

// Errorf makes an Error.
func Errorf(code Code, param, format string, args ...any) *Error {
	return &Error{Code: code, Param: param, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Message }

// Status is the HTTP status of the error's code.
func (e *Error) Status() int { return Lookup(e.Code).Status }

// errorBody is the inside of the error object. Param and Code are a string or null.
type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Reason  string  `json:"reason,omitempty"`
}

// MarshalJSON writes the object that clients expect.
func (e *Error) MarshalJSON() ([]byte, error) {
	body := errorBody{Message: e.Message, Type: Lookup(e.Code).Type, Reason: e.Reason}
	if e.Param != "" {
		body.Param = &e.Param
	}
	if code := string(e.Code); code != "" {
		body.Code = &code
	}
	return marshal(map[string]errorBody{"error": body})
}

// WriteError answers a request with an error: status, headers and body. Nothing may have been
// written before.
func WriteError(w http.ResponseWriter, e *Error) {
	row := Lookup(e.Code)
	body, err := marshal(e)
	if err != nil {
		panic("openai: an error does not marshal: " + err.Error())
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if row.RetryAfter {
		after := max(e.RetryAfter, time.Second)
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	if row.NoRetry {
		h.Set("X-Should-Retry", "false")
	}
	w.WriteHeader(row.Status)
	w.Write(body) // A client that is gone notices nothing.
}

// DecodeError reads an error that another instance answered, whatever its shape: a body that is not
// ours becomes internal_error with the status in its text.
func DecodeError(status int, body []byte) *Error {
	var outer struct {
		Error *errorBody `json:"error"`
	}
	if json.Unmarshal(body, &outer) != nil || outer.Error == nil || outer.Error.Code == nil {
		const most = 200
		return Errorf(CodeInternal, "", "the instance answered status %d: %.*s", status, most, body)
	}
	in := outer.Error
	e := &Error{Message: in.Message, Code: Code(*in.Code), Reason: in.Reason}
	if in.Param != nil {
		e.Param = *in.Param
	}
	return e
}
