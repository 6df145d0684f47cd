package transfer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Metadata is a parsed metadata string. The token it holds is never printed.
type Metadata struct {
	Address string
	Lease   string
	Epoch   uint64
	Window  Window
	// Segments are the destination's slots, one list a model.
	Segments [][]Segment
	// FreePages and Running are how busy the receiver was at the grant.
	FreePages, Running int

	token  Token
	target endpoint
	raw    []byte // J and its MAC, as they came
}

// letter is J, the JSON object of a metadata string.
type letter struct {
	Version int     `json:"version"`
	Address string  `json:"address"`
	Lease   string  `json:"lease"`
	Token   string  `json:"token"` // 32 hex digits
	Epoch   uint64  `json:"epoch"`
	Compat  string  `json:"compat"` // hex digest of all models' Compat
	Models  [][]int `json:"models"`
	Free    int     `json:"free_pages,omitempty"`
	Running int     `json:"running,omitempty"`
}

// key makes and verifies metadata strings: 32 random bytes, drawn by the receiver at start.
type key [32]byte

func (k *key) mac(text []byte) []byte {
	h := hmac.New(sha256.New, k[:])
	h.Write(text)
	return h.Sum(nil)
}

// sign is the metadata string of a letter.
func (k *key) sign(l letter) (string, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("metadata of lease %q: %w", l.Lease, err)
	}
	signed := base64.StdEncoding.EncodeToString(append(text, k.mac(text)...))
	if len(signed) > MaxMetadata {
		return "", fault(InvalidMetadata, "a string of %d bytes for lease %s, the most are %d: "+
			"its pages lie in too many pieces", len(signed), show(l.Lease), MaxMetadata)
	}
	return signed, nil
}

// verify reads the letter of raw if the MAC is ours. The comparison takes constant time.
func (k *key) verify(raw []byte) (*letter, *Error) {
	if len(raw) < sha256.Size {
		return nil, fault(InvalidMetadata, "%d bytes", len(raw))
	}
	text, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	if !hmac.Equal(mac, k.mac(text)) {
		return nil, fault(InvalidMetadata, "not made by this instance since it started")
	}
	return readLetter(text)
}

func readLetter(text []byte) (*letter, *Error) {
	var l letter
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fault(InvalidMetadata, "no JSON object of the expected shape: %v", err)
	}
	if l.Version != ProtocolVersion {
		return nil, fault(InvalidMetadata, "version %d, known is %d", l.Version, ProtocolVersion)
	}
	return &l, nil
}

func (l *letter) token() (t Token, err *Error) {
	if n, err := hex.Decode(t[:], []byte(l.Token[:min(len(l.Token), 2*len(t))])); err != nil ||
		n != len(t) || len(l.Token) != 2*len(t) {
		return Token{}, fault(InvalidMetadata, "the token is not 32 hex digits")
	}
	return t, nil
}

// ParseMetadata reads a metadata string and checks all that a sender of so many models can know,
// but for the rule on peers: see Sender.Parse, which checks that too. The error is an *Error of
// reason InvalidMetadata.
func ParseMetadata(text string, w Window, models int) (*Metadata, error) {
	m, bad := parseMetadata(text, w, models)
	if bad != nil {
		return nil, bad
	}
	return m, nil
}

// parseMetadata is ParseMetadata with the error as it is.
func parseMetadata(text string, w Window, models int) (*Metadata, *Error) {
	if w.Begin < 0 || w.End < w.Begin || w.End > MaxPositions {
		return nil, fault(InvalidMetadata, "no window: [%d, %d)", w.Begin, w.End)
	}
	if len(text) > MaxMetadata {
		return nil, fault(InvalidMetadata, "%d bytes, the most are %d", len(text), MaxMetadata)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < sha256.Size || strings.ContainsAny(text, "\r\n") {
		return nil, fault(InvalidMetadata, "no base64 of a reservation")
	}
	l, bad := readLetter(raw[:len(raw)-sha256.Size])
	if bad != nil {
		return nil, bad
	}
	m := &Metadata{Address: l.Address, Lease: l.Lease, Epoch: l.Epoch, Window: w, raw: raw,
		FreePages: l.Free, Running: l.Running}
	if m.token, bad = l.token(); bad != nil {
		return nil, bad
	}
	if m.target, bad = parseEndpoint(l.Address); bad != nil {
		return nil, bad
	}
	if l.Lease == "" || len(l.Lease) > maxLease {
		return nil, fault(InvalidMetadata, "a lease id of %d bytes", len(l.Lease))
	}
	m.Segments, bad = readModels(l.Models, w, models)
	return m, bad
}

// readModels checks the inner lists: one a model, each well formed and as long as the window.
func readModels(lists [][]int, w Window, models int) ([][]Segment, *Error) {
	if len(lists) != models {
		return nil, fault(InvalidMetadata, "%d lists of slots for %d models", len(lists), models)
	}
	all := make([][]Segment, models)
	for i, list := range lists {
		segments, bad := unflatten(list)
		if bad == nil {
			bad = checkSegments(segments, w.Len())
		}
		if bad != nil {
			bad.Detail = fmt.Sprintf("model %d: %s", i, bad.Detail)
			return nil, bad
		}
		all[i] = segments
	}
	return all, nil
}
