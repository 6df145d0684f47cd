package sim

import (
	"flag"
	"testing"
)

var find = flag.Bool("find", false, "find the first seed that catches each planted bug")

// caught is the first seed that catches each planted bug. Where the parts or the worlds have
// changed, -find prints the table anew.
var caught = map[Bug]uint64{
	FreedEarly:      1,  // its page has fewer references than tables hold it
	SwappedPage:     1,  // a wrong token
	EarlyAck:        1,  // pages may be written that are published
	LeaseNotRenewed: 1,  // a lease may be written, its page is free
	ChunkOffByOne:   1,  // a wrong token
	StaleEpoch:      1,  // a lease may be written, its page is free
	DoubleRelease:   1,  // its page has fewer references than tables hold it
	MatchTooLong:    1,  // a wrong token
	MissingFence:    1,  // a lease may be written, its page is free
	WrongBegin:      1,  // delivered, though slots were not written
	LostAck:         1,  // pages that are never given back
	MissingCopy:     3,  // a page of the prefix tree that does not hold its tokens
	DeviceIgnored:   2,  // a wrong token
	WrongLayer:      1,  // a wrong token
	TokenTwice:      35, // a token too many
}

// TestPlantedBugs plants each bug and expects the seed of the table to catch it, and the same seed
// to be content without.
func TestPlantedBugs(t *testing.T) {
	for _, b := range Bugs() {
		if *find {
			findSeed(t, b)
			continue
		}
		c := Random(caught[b])
		if _, err := Run(c); err != nil {
			t.Errorf("%v: seed %d fails without the bug: %v", b, caught[b], err)
		}
		c.Bug = b
		_, err := Run(c)
		if err == nil {
			t.Errorf("%v: seed %d did not catch it; find others: "+
				"go test ./host/sim -run TestPlantedBugs -find -v", b, caught[b])
			continue
		}
		t.Logf("%v: %.160v", b, err)
	}
}

func findSeed(t *testing.T, b Bug) {
	for s := uint64(1); s <= 5000; s++ {
		c := Random(s)
		c.Bug = b
		if _, err := Run(c); err != nil {
			t.Logf("%v: seed %d: %.160v", b, s, err)
			return
		}
	}
	t.Errorf("%v: no seed catches it", b)
}
