package main

import (
	"path/filepath"
	"slices"

	"github.com/kvrelay/engine/host/config"
	"github.com/kvrelay/engine/host/transfer"
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
	if !nearby.HasUnix || !slices.Contains(list, "unix") && !slices.Contains(list, "shm") {
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
// system has none.
func transports(list []string) []transfer.Transport {
	allowed := []transfer.Transport{} // nil would mean TCP.
	for _, name := range list {
		t := transfer.Transport(name)
		if t == transfer.Unix && !nearby.HasUnix || t == transfer.Shared && !nearby.HasShared {
			continue
		}
		allowed = append(allowed, t)
	}
	return allowed
}
