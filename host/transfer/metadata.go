package transfer

// Metadata is a parsed metadata string. The token it holds is never printed.
type Metadata struct {
	Address string
	Lease   string
	Epoch   uint64
	Window  Window
	// Segments are the destination's slots, one list a model.
	Segments [][]Segment
}
