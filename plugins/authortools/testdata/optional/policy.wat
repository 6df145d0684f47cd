;; Counts events: each decision's reason is how many there were, and the count outlives a swap.
(module
  (memory (export "memory") 1 256)
  (data (i32.const 16)
    "POL1" "\40\00" "\00\00" "\00\00" "\01\00"                ;; state version: STATE_VERSION
    "\30\00\00\00" "\00\00\00\00\00\00\00\00"
    "\61\00\00\00\00\00\00\00"                                 ;; chunk lengths, events, state
    "\60\00\00\00" "\04\00\00\00" "\68\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "mine")
  (data (i32.const 104) "1.0.0")
  (data (i32.const 112) "it was 78")
  (data (i32.const 128) "not this version")

  (func (export "pol_abi_v1") (result i32) (i32.const 16))

  (global $next (mut i32) (i32.const 256))
  (global $events (mut i32) (i32.const 0))
  (global $state (mut i32) (i32.const 0))
  (global $seen (mut i64) (i64.const 0))
  (global $said (mut i64) (i64.const 0))

  (func (export "pol_buffer") (param $kind i32) (param $bytes i32) (result i32)
    (local $at i32) (local $end i32)
    (local.set $at (global.get $next))
    (local.set $end
      (i32.and (i32.add (i32.add (local.get $at) (local.get $bytes)) (i32.const 31)) (i32.const -16)))
    (if (i32.gt_u (local.get $end) (i32.shl (memory.size) (i32.const 16)))
      (then
        (if (i32.eq (i32.const -1)
              (memory.grow (i32.add (i32.shr_u (local.get $bytes) (i32.const 16)) (i32.const 1))))
          (then (return (i32.const 0))))))
    (global.set $next (local.get $end))
    (if (i32.eq (local.get $kind) (i32.const 6)) (then (global.set $events (local.get $at))))
    (if (i32.eq (local.get $kind) (i32.const 7)) (then (global.set $state (local.get $at))))
    (local.get $at))

  (func (export "pol_init") (param i32) (result i32) (i32.const 0))

  (func $observe (export "pol_observe") (param $n i32) (result i32)
    (local $i i32) (local $extra i64)
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (local.set $extra (i64.load offset=24
          (i32.add (global.get $events) (i32.shl (local.get $i) (i32.const 5)))))
        (if (i64.eq (local.get $extra) (i64.const 77)) (then (unreachable)))
        (if (i64.eq (local.get $extra) (i64.const 78))
          (then
            (global.set $said (i64.const 0x7000000009)) ;; 9 bytes at 112
            (return (i32.const -2))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $each)))
    (global.set $seen (i64.add (global.get $seen) (i64.extend_i32_u (local.get $n))))
    (i32.const 0))

  (func (export "pol_decide") (param $h i32) (result i32)
    (local $r i32) (local $d i32)
    (if (i32.eqz (i32.load offset=24 (local.get $h))) (then (return (i32.const 0)))) ;; n_slots
    (local.set $r (i32.load offset=32 (local.get $h)))
    (local.set $d (i32.load offset=96 (local.get $h)))
    ;; Live, not decoding, with prompt to compute.
    (if (i32.or
          (i32.ne (i32.and (i32.load offset=32 (local.get $r)) (i32.const 5)) (i32.const 1))
          (i32.eqz (i32.load offset=44 (local.get $r))))
      (then (return (i32.const 0))))
    (if (i32.eqz (i32.load offset=92 (local.get $h))) (then (return (i32.const 0)))) ;; decisions_cap
    (i32.store (local.get $d) (i32.const 0))
    (i32.store offset=4 (local.get $d) (i32.const -1)) ;; the host chooses the chunk
    (i32.store offset=8 (local.get $d) (i32.load (local.get $r)))
    (i32.store offset=12 (local.get $d) (i32.const 0))
    (i32.store16 offset=14 (local.get $d) (i32.wrap_i64 (global.get $seen)))
    (i32.const 1))

  (func (export "pol_save") (param $room i32) (result i32)
    (if (i32.ge_u (local.get $room) (i32.const 8))
      (then (i64.store (global.get $state) (global.get $seen))))
    (i32.const 8))

  (func (export "pol_load") (param $bytes i32) (param $version i32) (result i32)
    (if (i32.ne (local.get $version) (i32.load16_u offset=26 (i32.const 0)))
      (then
        (global.set $said (i64.const 0x8000000010)) ;; 16 bytes at 128
        (return (i32.const -7))))
    (global.set $seen (i64.load (global.get $state)))
    (i32.const 0))

  (func (export "pol_last_error") (result i64) (global.get $said))
)
