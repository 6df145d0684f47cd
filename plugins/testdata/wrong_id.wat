;; Lists a request under the id of another.
(module
  (memory (export "memory") 16)
  (data (i32.const 16) ;; the descriptor: abi/SPEC.md, 8
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00" "\32\00\00\00"
    "\00\00\00\00\00\00\00\00" "\01\02\00\00\00\00\00\00"
    "\60\00\00\00" "\08\00\00\00" "\a0\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "wrong-id")
  (data (i32.const 160) "1.0.0")
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
  ;; Writes a decision: slot, tokens, the low half of the record's id, action.
  (func $write (param $d i32) (param $slot i32) (param $tokens i32) (param $id i32)
    (i32.store (local.get $d) (local.get $slot))
    (i32.store offset=4 (local.get $d) (local.get $tokens))
    (i32.store offset=8 (local.get $d) (local.get $id))
    (i32.store offset=12 (local.get $d) (i32.const 0)))
  (func $record (param $h i32) (param $slot i32) (result i32)
    (i32.add (i32.load offset=32 (local.get $h)) (i32.mul (local.get $slot) (i32.const 128))))
  ;; The first slot that has prompt to compute, or -1.
  (func $first (param $h i32) (result i32)
    (local $slot i32)
    (block $none
      (loop $each
        (br_if $none (i32.ge_u (local.get $slot) (i32.load offset=24 (local.get $h))))
        (if (i32.and
              (i32.and (i32.load offset=32 (call $record (local.get $h) (local.get $slot))) (i32.const 1))
              (i32.ne (i32.load offset=44 (call $record (local.get $h) (local.get $slot))) (i32.const 0)))
          (then (return (local.get $slot))))
        (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
        (br $each)))
    (i32.const -1))
  ;; Quiet until the engine's clock shows a second, so that the trial at load finds nothing.
  (func (export "pol_decide") (param $h i32) (result i32)
    (local $slot i32)
    (if (i64.lt_s (i64.load offset=16 (local.get $h)) (i64.const 1000000000))
      (then (return (i32.const 0))))
    (local.set $slot (call $first (local.get $h)))
    (if (i32.eq (local.get $slot) (i32.const -1)) (then (return (i32.const 0))))
    (call $write (i32.load offset=96 (local.get $h)) (local.get $slot) (i32.const 1)
      (i32.add (i32.load (call $record (local.get $h) (local.get $slot))) (i32.const 1)))
    (i32.const 1))
)
