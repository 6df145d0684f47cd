package model

import (
	"errors"
	"fmt"

	"github.com/kvrelay/engine/gpu"
	"github.com/kvrelay/engine/host/kvcache"
)

// Limits of a pool: page numbers and slot numbers are int32.
const (
	maxPages    = 1 << 20
	maxPageSize = 1 << 10
)

// KVStore is the memory behind the pages of one pool: keys and values of all layers. Its methods
// may run beside Model.Run for pages that no item of the running batch writes.
type KVStore struct {
	device gpu.Device
	kv     gpu.KV
	shape  gpu.KVShape
}

// Pages is the count of pages in the pool.
func (s *KVStore) Pages() int { return s.shape.Pages }

// PageSize is the count of token slots in a page.
func (s *KVStore) PageSize() int { return s.shape.PageSize }

// Layers is the count of layers.
func (s *KVStore) Layers() int { return s.shape.Layers }

// DType is the type in which keys and values leave the pool.
func (s *KVStore) DType() gpu.DType { return s.shape.DType }

// TokenBytes is what one token takes in one layer: the unit of ReadPage and WritePage.
func (s *KVStore) TokenBytes() int { return s.shape.TokenBytes() }

// ReadPage writes the keys and values of a range of slots in one layer to dst, in the canonical
// layout of gpu.KVRange; len(dst) must be r.Count*TokenBytes().
func (s *KVStore) ReadPage(layer int, r kvcache.SlotRange, dst []byte) error {
	if err := s.device.PackKV(s.kv, at(layer, r), dst); err != nil {
		return fmt.Errorf("read slots of page %d: %w", r.Page, err)
	}
	return nil
}

// WritePage is the inverse of ReadPage.
func (s *KVStore) WritePage(layer int, r kvcache.SlotRange, src []byte) error {
	if err := s.device.UnpackKV(s.kv, at(layer, r), src); err != nil {
		return fmt.Errorf("write slots of page %d: %w", r.Page, err)
	}
	return nil
}

// WriteRanges implements transfer.RangedPages: at once, where the device can.
func (s *KVStore) WriteRanges(layer int, ranges []kvcache.SlotRange, src []byte) error {
	device, ok := s.device.(interface {
		UnpackRanges(gpu.KV, []gpu.KVRange, []byte) error
	})
	if ok {
		if err := device.UnpackRanges(s.kv, allAt(layer, ranges), src); err != nil {
			return fmt.Errorf("write slots of %d pages: %w", len(ranges), err)
		}
		return nil
	}
	for _, r := range ranges {
		size := r.Count * s.TokenBytes()
		if err := s.WritePage(layer, r, src[:size]); err != nil {
			return err
		}
		src = src[size:]
	}
	return nil
}

// ReadsLate says whether complete slots may be read while others of the same page are written: the
// device says so.
func (s *KVStore) ReadsLate() bool {
	device, ok := s.device.(interface{ SlotsApart() bool })
	return ok && device.SlotsApart()
}

// Stage implements transfer.StagedPages, where the device can copy slots beside its kernels.
func (s *KVStore) Stage(layer int, ranges []kvcache.SlotRange) error {
	device, ok := s.device.(interface {
		StageKV(gpu.KV, int, []gpu.KVRange) error
	})
	if !ok {
		return nil
	}
	return device.StageKV(s.kv, layer, allAt(layer, ranges))
}

// laneDevice is what a device can do that reaches memory of other processes.
type laneDevice interface {
	PackLane(kv gpu.KV, ranges []gpu.KVRange, lane, at int) (wait func() error, err error)
	UnpackLane(kv gpu.KV, ranges []gpu.KVRange, lane, at int) error
}

var errNoLanes = errors.New("the device reaches no memory of other processes")

// PutRanges implements transfer.LanePages, where the device has lanes.
func (s *KVStore) PutRanges(
	layer int, ranges []kvcache.SlotRange, lane, at int,
) (wait func() error, err error) {
	device, ok := s.device.(laneDevice)
	if !ok {
		return nil, errNoLanes
	}
	return device.PackLane(s.kv, allAt(layer, ranges), lane, at)
}

// TakeRanges implements transfer.LanePages, where the device has lanes.
func (s *KVStore) TakeRanges(layer int, ranges []kvcache.SlotRange, lane, at int) error {
	device, ok := s.device.(laneDevice)
	if !ok {
		return errNoLanes
	}
	return device.UnpackLane(s.kv, allAt(layer, ranges), lane, at)
}

func allAt(layer int, ranges []kvcache.SlotRange) []gpu.KVRange {
	all := make([]gpu.KVRange, len(ranges))
	for i, r := range ranges {
		all[i] = at(layer, r)
	}
	return all
}

func at(layer int, r kvcache.SlotRange) gpu.KVRange {
	return gpu.KVRange{Layer: layer, Page: int(r.Page), First: r.First, Count: r.Count}
}
