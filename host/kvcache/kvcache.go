// Package kvcache counts the pages of KV memory: which are free, which are held and by how many.
// It knows integers only; the arrays behind the pages belong to host/model.
package kvcache

// PageID is the index of a page in its pool. A page is PageSize token slots of every layer.
type PageID int32
