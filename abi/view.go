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

	// Tenants is the whole tenant table: entry i has Index i, and Record.Tenant is an index into
	// it. It is nil where the host does not offer CapTenants.
	Tenants []Tenant
	// Peers is the whole peer table: entry i has Index i+1, for a record's peer 0 means none. It is
	// nil where the host does not offer CapPeers.
	Peers []Peer
	// Events are what happened since the last call, in order: the host hands them to pol_observe
	// before pol_decide. It is nil where the host does not offer CapEvents.
	Events []Event
	// Preset is the answer of the module that selects, already judged, for a module that only sets
	// chunk lengths; a scheduler leaves it nil.
	Preset []Decision
}
