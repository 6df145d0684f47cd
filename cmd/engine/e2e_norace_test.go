//go:build !race

package main

// raced says that this is a build with the race detector.
const raced = false
