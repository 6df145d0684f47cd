package abi

import (
	"strings"
	"testing"
)

func goodDescriptor() Descriptor {
	return Descriptor{
		Magic: Magic, Size: DescriptorSize, Flags: DescSelects | DescSetsChunks,
		RecordBytes: RecordSize, HeaderBytes: HeaderSize,
	}
}

func TestDescriptorCheck(t *testing.T) {
	cases := []struct {
		change func(*Descriptor)
		want   string // Part of the error; "" means none.
	}{
		{func(*Descriptor) {}, ""},
		{func(d *Descriptor) { d.CapsRequired = CapsOffered }, ""},
		{func(d *Descriptor) { d.CapsOptional = ^uint64(0) }, ""},
		{func(d *Descriptor) { d.Minor = 9 }, ""},
		{func(d *Descriptor) { d.Flags |= 1 << 31 }, ""},
		{func(d *Descriptor) { d.RecordBytes, d.HeaderBytes = 144, 256 }, ""},
		{func(d *Descriptor) { d.Magic = 0 }, "magic"},
		{func(d *Descriptor) { d.Size = 56 }, "size is 56"},
		{func(d *Descriptor) { d.OldestHostMinor = 1 }, "1.1 or later"},
		{func(d *Descriptor) { d.CapsRequired = CapSwap | CapAdapter }, "2 (swap), 8 (adapter)"},
		{func(d *Descriptor) { d.CapsRequired = 1 << 63 }, "63 (unknown)"},
		{func(d *Descriptor) { d.Flags = DescSetsChunks }, ""},
		{func(d *Descriptor) { d.Flags = DescWantsChanged }, "neither the flag selects"},
		{func(d *Descriptor) { d.Flags |= DescNeedsTenants }, "needs_tenants"},
		{func(d *Descriptor) { d.RecordBytes = 64 }, "record_bytes is 64"},
		{func(d *Descriptor) { d.HeaderBytes = 64 }, "header_bytes is 64"},
		{func(d *Descriptor) { d.Reserved = 1 }, "reserved"},
	}
	for i, c := range cases {
		d := goodDescriptor()
		c.change(&d)
		offered := uint64(CapsOffered)
		if d.Flags&DescNeedsTenants != 0 {
			offered &^= CapTenants
		}
		err := d.Check(offered)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("case %d: %v", i, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("case %d: %v, want %q", i, err, c.want)
		}
	}
}

func TestGrantedIsWhatIsAskedAndOffered(t *testing.T) {
	d := goodDescriptor()
	d.CapsRequired, d.CapsOptional = CapChunkLengths, CapLog|CapSwap
	if got := d.Granted(CapsOffered); got != CapChunkLengths|CapLog {
		t.Errorf("granted %s", CapNames(got))
	}
}
