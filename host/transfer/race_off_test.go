//go:build !race

package transfer

// raced says that this is a build with the race detector.
const raced = false
