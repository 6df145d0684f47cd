//go:build race

package transfer

// raced says that this is a build with the race detector, which would take minutes over the states
// of the protocol and find nothing: nothing there runs beside anything else.
const raced = true
