package cpu

import "syscall"

// askForTiles asks Linux for the right to use tile data (Documentation/arch/x86/xstate.rst): the
// kernel then makes room for them in signal frames, and refuses where some thread's alternate
// stack is too small. The right is the process's.
func askForTiles() bool {
	const requestPermission, tileData = 0x1023, 18
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return err == 0
}
