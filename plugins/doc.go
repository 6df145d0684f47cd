// Package plugins runs scheduling policies as sandboxed WebAssembly modules.
//
// A Host owns every module that was loaded and lets one of them decide each step. The engine's
// goroutine calls Decide; anybody may call Load, Activate, Rollback, Unload and List at any time.
//
// What always holds:
//
//   - Nothing is compiled that package lint did not accept, and nothing runs that does not meter
//     itself (package fuel). A call ends by itself within its fuel; no watchdog is needed.
//   - A sandbox that faulted once is thrown away, whatever its state. A warm spare takes over at
//     the next step and sees the whole record table anew.
//   - A new module takes over between two steps, and only after it was linked, initialised and
//     tried on made-up tables. Until then the old one stays.
//   - What a module knows is handed to the next one of its name at a swap. Where that fails the
//     next one starts from the record table, which always suffices.
//   - An error from Decide means: the built-in policy decides this step.
package plugins
