// Package scheduler decides what the next step computes. It owns the sequences, their page tables
// and the order in which they run; it has no clock, no device, no network and no goroutine: events
// and times go in, a plan comes out, the sampled tokens go back in.
//
// One turn of the caller's loop: Submit, Cancel and the transfer's events; Plan; run the batch;
// Commit; Finish for each sequence that has ended. Between Plan and Commit (or Abandon, when the
// device failed) no other method that changes anything may be called.
//
// What always holds:
//
//  1. A sequence is in exactly one state, and one function moves it (sequence.go).
//  2. A page is owned by exactly one of: free list, sequences (counted), prefix tree, quarantine.
//  3. A policy decides when, never which: any answer leads to the same tokens.
//  4. A running decode has its token in every step unless the policy skips it or pages run out.
//  5. One predicate admits a chunk: need + one page for each running and admitted sequence fits
//     what is free or evictable.
package scheduler
