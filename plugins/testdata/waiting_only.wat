;; Lists only waiting requests, in order of arrival, each with a chunk of the whole budget if its prompt
;; is that long. Running streams are never listed; they must not stall.
(module
  (memory (export "memory") 16)
  (data (i32.const 16) ;; the descriptor: abi/SPEC.md, 8
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00" "\32\00\00\00"
    "\00\00\00\00\00\00\00\00" "\01\02\00\00\00\00\00\00"
    "\60\00\00\00" "\0c\00\00\00" "\a0\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "waiting-only")
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
  ;; Does the record at $a come before the one at $b? By arrival, then id.
  (func $before (param $a i32) (param $b i32) (result i32)
    (if (result i32) (i64.eq (i64.load offset=8 (local.get $a)) (i64.load offset=8 (local.get $b)))
      (then (i64.lt_u (i64.load (local.get $a)) (i64.load (local.get $b))))
      (else (i64.lt_s (i64.load offset=8 (local.get $a)) (i64.load offset=8 (local.get $b))))))
  ;; Puts a slot into its place among the $n decisions that are there.
  (func $insert (param $h i32) (param $n i32) (param $slot i32)
    (local $d i32)
    (local.set $d (i32.add (i32.load offset=96 (local.get $h)) (i32.shl (local.get $n) (i32.const 4))))
    (block $found
      (loop $back
        (br_if $found (i32.eq (local.get $d) (i32.load offset=96 (local.get $h))))
        (br_if $found (i32.eqz (call $before (call $record (local.get $h) (local.get $slot))
          (call $record (local.get $h) (i32.load (i32.sub (local.get $d) (i32.const 16)))))))
        (memory.copy (local.get $d) (i32.sub (local.get $d) (i32.const 16)) (i32.const 16))
        (local.set $d (i32.sub (local.get $d) (i32.const 16)))
        (br $back)))
    (call $write (local.get $d) (local.get $slot)
      (select (i32.load offset=68 (local.get $h))
        (i32.load offset=44 (call $record (local.get $h) (local.get $slot)))
        (i32.lt_u (i32.load offset=68 (local.get $h))
          (i32.load offset=44 (call $record (local.get $h) (local.get $slot)))))
      (i32.load (call $record (local.get $h) (local.get $slot)))))
  (func (export "pol_decide") (param $h i32) (result i32)
    (local $slot i32) (local $n i32) (local $r i32)
    (if (i32.eqz (i32.load offset=68 (local.get $h))) (then (return (i32.const 0))))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $slot) (i32.load offset=24 (local.get $h))))
        (br_if $done (i32.ge_u (local.get $n) (i32.load offset=92 (local.get $h))))
        (local.set $r (call $record (local.get $h) (local.get $slot)))
        ;; live (1) and neither running (2) nor decoding (4), with prompt to compute
        (if (i32.and (i32.eq (i32.and (i32.load offset=32 (local.get $r)) (i32.const 7)) (i32.const 1))
                     (i32.ne (i32.load offset=44 (local.get $r)) (i32.const 0)))
          (then
            (call $insert (local.get $h) (local.get $n) (local.get $slot))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))))
        (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
        (br $each)))
    (local.get $n))
)
