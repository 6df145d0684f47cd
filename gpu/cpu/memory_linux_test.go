package cpu

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestHugePages: the system knows that weights are to lie in huge pages, small ones as well.
func TestHugePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("this kernel has no huge pages on advice: ", err)
	}
	var s store
	for _, size := range []int{600 << 10, 12 << 20} {
		m := s.take(size)
		m.bytes[0] = 1
		flags, err := flagsOf(uintptr(unsafe.Pointer(&m.bytes[0])))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(flags+" ", " hg ") {
			t.Errorf("%d bytes lie in a mapping without the advice: %s", size, flags)
		}
	}
}

// flagsOf are the flags of the mapping that an address lies in.
func flagsOf(address uintptr) (string, error) {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return "", err
	}
	defer file.Close()
	inside := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, is := strings.CutPrefix(lines.Text(), "VmFlags:"); is && inside {
			return flags, nil
		}
	}
	return "", fmt.Errorf("no mapping holds %#x", address)
}
