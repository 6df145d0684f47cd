package abi

import (
	"errors"
	"fmt"
	"strings"
)

// Check says why a module that describes itself so cannot be loaded by a host that offers these
// capabilities; nil when it can. All reasons are given at once, so that an author mends them in one
// go. It judges the numbers only: name and version lie in the guest's memory.
func (d *Descriptor) Check(offered uint64) error {
	if d.Magic != Magic {
		return fmt.Errorf("descriptor: magic is %#x, a policy of this ABI has %#x (\"POL1\")",
			d.Magic, uint32(Magic))
	}
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("descriptor: "+format, args...))
	}
	if d.Size < DescriptorSize {
		problem("size is %d, at least %d is needed", d.Size, DescriptorSize)
	}
	if d.OldestHostMinor > Minor {
		problem("the module needs a host of version %d.%d or later, this one is %d.%d",
			Major, d.OldestHostMinor, Major, Minor)
	}
	if missing := d.CapsRequired &^ offered; missing != 0 {
		problem("the module requires what this host does not offer: %s", CapNames(missing))
	}
	if d.Flags&(DescSelects|DescSetsChunks) == 0 {
		problem("neither the flag selects (%d) nor sets_chunks (%d) is set: it decides nothing",
			DescSelects, DescSetsChunks)
	}
	if d.Flags&DescNeedsTenants != 0 && offered&CapTenants == 0 {
		problem("flag needs_tenants is set and this host offers no tenants (capability 4)")
	}
	if d.RecordBytes < RecordSize {
		problem("record_bytes is %d, version 1 has at least %d", d.RecordBytes, RecordSize)
	}
	if d.HeaderBytes < HeaderSize {
		problem("header_bytes is %d, version 1 has at least %d", d.HeaderBytes, HeaderSize)
	}
	if d.Reserved != 0 {
		problem("reserved is not 0")
	}
	return errors.Join(problems...)
}

// Granted is what pol_v1.granted tells the guest: of what it asks for, what the host offers. The
// flag needs_tenants asks for the tenants.
func (d *Descriptor) Granted(offered uint64) uint64 {
	asked := d.CapsRequired | d.CapsOptional
	if d.Flags&DescNeedsTenants != 0 {
		asked |= CapTenants
	}
	return asked & offered
}

// CapNames lists a set of capabilities for people: "1 (preempt), 4 (tenants)".
func CapNames(set uint64) string {
	var names []string
	for bit := range 64 {
		mask := uint64(1) << bit
		if set&mask == 0 {
			continue
		}
		name := CapName(mask)
		if name == "" {
			name = "unknown"
		}
		names = append(names, fmt.Sprintf("%d (%s)", bit, name))
	}
	return strings.Join(names, ", ")
}
