package sim

import "testing"

// caughtWithin is how many seeds a planted bug may escape.
const caughtWithin = 200

// TestPlantedBugs plants each bug in one world after the other until one catches it; without it
// the same world must be content. When this was written they were caught by
//
//	bug                          seed   what was seen
//	page freed early                1   a page is referenced and its parent in the tree is not
//	swapped page                    1   a page of the prefix tree does not hold its tokens
//	ack before the last frame       1   a wrong token
//	lease not renewed               3   a lease may be written, its page is free
//	chunk off by one                1   a page of the prefix tree does not hold its tokens
//	stale epoch accepted            3   a lease may be written, its page is free
//	double release                  1   a page is released without a reference
//	prefix match one too long       1   a page of the prefix tree does not hold its tokens
//	missing fence                   3   a lease may be written, its page is free
//	wrong begin                     1   delivered, though slots were not written
//	lost ack                        1   pages that nobody gave back
//	missing copy                    1   a wrong token
//	device failure ignored          2   a wrong token
//	wrong layer                     3   a wrong token
//	draft left behind               7   a sequence's page in the draft does not hold its tokens
//	token streamed twice           10   a token too many
//
// A change of any part moves the seeds; -v prints those of now.
func TestPlantedBugs(t *testing.T) {
	for _, b := range Bugs() {
		s, seen := catch(b)
		if seen == nil {
			t.Errorf("%v: not caught by %d seeds", b, caughtWithin)
			continue
		}
		t.Logf("%-28v %4d   %.120v", b, s, seen)
		if _, err := Run(Random(s)); err != nil {
			t.Errorf("%v: seed %d fails without the bug: %v", b, s, err)
		}
	}
}

// catch returns the first seed that catches a bug, and what it saw.
func catch(b Bug) (seed uint64, seen error) {
	for seed = 1; seed <= caughtWithin; seed++ {
		c := Random(seed)
		c.Bug = b
		if _, seen = Run(c); seen != nil {
			return seed, seen
		}
	}
	return 0, nil
}
