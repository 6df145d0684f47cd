//go:build race

package main

// raced says that this is a build with the race detector, in which everything takes many times as
// long: the tests do the same with fewer models, modules and rounds.
const raced = true
