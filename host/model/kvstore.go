package model

import (
	"errors"

	"github.com/kvrelay/engine/host/kvcache"
)

// KVStore is the memory behind the pages of one pool: keys and values of all layers. Its methods may
// run beside Model.Run for pages that no item of the running batch writes.
type KVStore struct {
	pages, pageSize, layers int
}

// Pages is the count of pages in the pool.
func (s *KVStore) Pages() int { return s.pages }

// PageSize is the count of token slots in a page.
func (s *KVStore) PageSize() int { return s.pageSize }

// Layers is the count of layers.
func (s *KVStore) Layers() int { return s.layers }

// TokenBytes is what one token takes in one layer: the unit of ReadPage and WritePage.
func (s *KVStore) TokenBytes() int { return 0 }

// ReadPage writes the keys and values of a range of slots in one layer to dst, in the canonical layout
// of gpu.KVRange; len(dst) must be r.Count*TokenBytes().
func (s *KVStore) ReadPage(layer int, r kvcache.SlotRange, dst []byte) error {
	return errors.ErrUnsupported
}

// WritePage is the inverse of ReadPage.
func (s *KVStore) WritePage(layer int, r kvcache.SlotRange, src []byte) error {
	return errors.ErrUnsupported
}
