package openai

// Bounds of a request beyond its body's size.
const (
	MaxFields   = 512       // of one object
	MaxPrompts  = 256       // of one completion request
	MaxItems    = 4096      // data items of one prompt
	MaxMessages = 16384     // of one chat request
	MaxParts    = 16384     // of one message's content
	MaxStop     = 16        // stop strings, unless Limits says otherwise
	MaxStopSize = 4 << 10   // bytes of one stop string
	MaxUser     = 512       // bytes of user
	MaxModel    = 1024      // bytes of model
	MaxMetadata = 64 << 10  // bytes of kv_addr_info
	MaxText     = 256 << 20 // bytes of a prompt or a message: the body's limit comes first
	MaxN        = 8         // answers to one prompt, unless Limits says otherwise

	MaxTools = 128  // of one chat request
	MaxCalls = 1024 // tool calls of one message

	maxTopLogprobs = 20
)

// Limits are the bounds that an operator sets.
type Limits struct {
	// MaxStop bounds the stop strings of a request; 0 is the constant MaxStop.
	MaxStop int
	// MaxN bounds n; 0 is the constant MaxN.
	MaxN int

	// internal is set for calls between a router and its instances.
	internal bool
}

func (l Limits) maxN() int {
	if l.MaxN == 0 {
		return MaxN
	}
	return l.MaxN
}

func (l Limits) maxStop() int {
	if l.MaxStop == 0 {
		return MaxStop
	}
	return l.MaxStop
}
