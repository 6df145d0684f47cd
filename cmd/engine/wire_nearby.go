package main

import (
	"path/filepath"
	"slices"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/transfer"
	"github.com/kvrelay/engine/host/transfer/lanes"
	"github.com/kvrelay/engine/host/transfer/nearby"
)

// nearbyFolder is where receivers of this user have their sockets; "" where there is no such place.
func nearbyFolder() string {
	folder, err := config.RuntimeFolder()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "transfer")
}

// listenNearby opens the nearer way to this receiver. Where there is none, senders on this host
// come by TCP like all others.
func (s *setup) listenNearby() *nearby.Listener {
	list := s.cfg.Transfer.Transports
	if !nearby.HasUnix || !slices.ContainsFunc(list, func(by string) bool { return by != "tcp" }) {
		return nil
	}
	l, err := nearby.Listen(nearbyFolder())
	if err != nil {
		s.log.Warn("transfers from this host will come by TCP: no socket for a nearer way",
			"error", err)
		return nil
	}
	return l
}

// transports are what a sender here may use. Unix sockets and shared memory are left out where the
// system has none, and memory of GPUs where there is no shared memory to say what lies in it.
func transports(list []string) []transfer.Transport {
	allowed := []transfer.Transport{} // nil would mean TCP.
	for _, name := range list {
		t := transfer.Transport(name)
		if t == transfer.Unix && !nearby.HasUnix ||
			(t == transfer.Shared || t == transfer.IPC) && !nearby.HasShared {
			continue
		}
		allowed = append(allowed, t)
	}
	return allowed
}

// laneDevice is the device that holds the pages, where it reaches memory of other processes and a
// transport that does so may be used.
func (s *setup) laneDevice() (lanes.Device, bool) {
	list := s.cfg.Transfer.Transports
	device, ok := s.device.(lanes.Device)
	return device, ok && nearby.HasShared &&
		(slices.Contains(list, "ipc") || slices.Contains(list, "shm"))
}

// lends is the memory that senders on this host may put keys and values into; nil: none.
func (s *setup) lends() *lanes.Lender {
	if device, ok := s.laneDevice(); ok {
		return lanes.NewLender(device, 0, 0)
	}
	return nil
}

// borrows is that of receivers on this host; nil: none.
func (s *setup) borrows() *lanes.Borrower {
	if device, ok := s.laneDevice(); ok {
		return lanes.NewBorrower(device)
	}
	return nil
}

// noteLane says why a transfer goes by another way than it might.
func (s *setup) noteLane(receiver string, by transfer.Transport, err error) {
	s.log.Warn("keys and values go by the host's memory: no lane to the receiver",
		"receiver", receiver, "transport", string(by), "error", err)
}
