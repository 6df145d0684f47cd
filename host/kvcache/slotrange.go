package kvcache

// SlotRange names token slots [First, First+Count) of one page.
type SlotRange struct {
	Page         PageID
	First, Count int
}
