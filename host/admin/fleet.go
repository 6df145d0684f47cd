package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Fleet is who stands behind a router.
type Fleet interface {
	// Instances lists them.
	Instances(ctx context.Context) []Instance
	// Change makes one join, leave, drain or take requests again.
	Change(ctx context.Context, c FleetChange) error
}

// The actions of a FleetChange.
const (
	FleetJoin   = "join"
	FleetLeave  = "leave"
	FleetDrain  = "drain"
	FleetResume = "resume"
)

// FleetChange is what shall become of an instance. Role is prefill or decode; it may be empty where
// Name alone says which. URL is where a joining one listens.
type FleetChange struct {
	Action string `json:"action"`
	Role   string `json:"role,omitempty"`
	Name   string `json:"name"`
	URL    string `json:"url,omitempty"`
}

// Instances answers who stands behind a router.
type Instances struct {
	Instances []Instance `json:"instances"`
}

var errNoFleet = errors.New("this instance is no router: nobody stands behind it")

func (s *server) instances(ctx context.Context, _ []byte) (Instances, error) {
	if s.options.Fleet == nil {
		return Instances{}, errNoFleet
	}
	return Instances{s.options.Fleet.Instances(ctx)}, nil
}

func (s *server) changeInstances(ctx context.Context, body []byte) (Instances, error) {
	if s.options.Fleet == nil {
		return Instances{}, errNoFleet
	}
	var c FleetChange
	if err := json.Unmarshal(body, &c); err != nil {
		return Instances{}, errors.New("the request is not understood: " + err.Error())
	}
	switch c.Action {
	case FleetJoin, FleetLeave, FleetDrain, FleetResume:
	default:
		return Instances{}, fmt.Errorf("action is %.40q; it must be %s, %s, %s or %s", c.Action,
			FleetJoin, FleetLeave, FleetDrain, FleetResume)
	}
	if err := s.options.Fleet.Change(ctx, c); err != nil {
		return Instances{}, err
	}
	return Instances{s.options.Fleet.Instances(ctx)}, nil
}
