;; Traps, and then says why by reading what lies in its memory.
(module
  (memory (export "memory") 16)
  (data (i32.const 16) ;; the descriptor: abi/SPEC.md, 8
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00" "\32\00\00\00"
    "\00\00\00\00\00\00\00\00" "\01\02\00\00\00\00\00\00"
    "\60\00\00\00" "\0f\00\00\00" "\a0\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "says-after-trap")
  (data (i32.const 160) "1.0.0")
  (data (i32.const 176) "\b8\00\00\00")
  (data (i32.const 184) "oops")
  (func (export "pol_abi_v1") (result i32) (i32.const 16))
  (global $next (mut i32) (i32.const 1024))
  (func (export "pol_buffer") (param $kind i32) (param $bytes i32) (result i32)
    (local $at i32)
    (if (i32.gt_u (local.get $kind) (i32.const 4)) (then (return (i32.const 0))))
    (local.set $at (global.get $next))
    (global.set $next (i32.and
      (i32.add (i32.add (local.get $at) (local.get $bytes)) (i32.const 15)) (i32.const -16)))
    (local.get $at))
  (func (export "pol_init") (param i32) (result i32) (i32.const 0))
  (func (export "pol_last_error") (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (i32.load (i32.const 176))) (i64.const 32)) (i64.const 4)))
  ;; Quiet until the engine's clock shows a second, so that the trial at load finds nothing.
  (func (export "pol_decide") (param $h i32) (result i32)
    (if (i64.lt_s (i64.load offset=16 (local.get $h)) (i64.const 1000000000))
      (then (return (i32.const 0))))
    unreachable)
)
