package abi

// View is what a policy sees in one step.
//
// Records is indexed by slot and covers all slots below Header.NSlots; a free slot has state 0.
// Changed lists the slots added, changed or freed since the last call, ascending and each once;
// with FlagResync it lists every live slot. The policy only reads; everything is valid until it
// returns.
type View struct {
	Header  Header
	Records []Record
	Changed []uint32
}
