;; Gives every request all that is left of its prompt, whatever the budget. The host trims that: it
;; is no fault.
(module
  (memory (export "memory") 16)
  (data (i32.const 16) ;; the descriptor: abi/SPEC.md, 8
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00" "\32\00\00\00"
    "\00\00\00\00\00\00\00\00" "\01\02\00\00\00\00\00\00"
    "\60\00\00\00" "\0b\00\00\00" "\a0\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "over-budget")
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
  (func (export "pol_decide") (param $h i32) (result i32)
    (local $slot i32) (local $n i32) (local $d i32) (local $r i32)
    (local.set $d (i32.load offset=96 (local.get $h)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $slot) (i32.load offset=24 (local.get $h))))
        (br_if $done (i32.ge_u (local.get $n) (i32.load offset=92 (local.get $h))))
        (local.set $r (call $record (local.get $h) (local.get $slot)))
        (if (i32.and (i32.and (i32.load offset=32 (local.get $r)) (i32.const 1))
                     (i32.ne (i32.load offset=44 (local.get $r)) (i32.const 0)))
          (then
            (call $write (local.get $d) (local.get $slot) (i32.load offset=44 (local.get $r))
              (i32.load (local.get $r)))
            (local.set $d (i32.add (local.get $d) (i32.const 16)))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))))
        (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
        (br $each)))
    (local.get $n))
)
