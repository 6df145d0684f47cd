// Package authortools is what the author of a policy works with: a new folder to start from, a
// build
// that finds the toolchain, test cases and made-up tables, measurements, and what a module says of
// itself.
//
// It runs modules in the sandbox of package plugins, under the limits of production, and judges
// answers by its Judge: a module that passes here is judged the same in an engine.
package authortools
