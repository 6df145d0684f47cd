;; A scheduling policy in WebAssembly text: first come, first served. A template to start from, and the
;; whole ABI in one page. Assemble it with: wat2wasm fcfs.wat -o fcfs.wasm
;;
;; It keeps nothing between steps: it scans the table, keeps the earliest requests in order, and gives
;; them chunks until the budget is used. Offsets are those of SPEC.md, 5 and 6.
(module
  (memory (export "memory") 1 256)

  ;; The descriptor, at 16.
  (data (i32.const 16)
    "POL1"                 ;;  0 magic
    "\40\00" "\00\00"      ;;  4 size 64, minor 0
    "\00\00" "\00\00"      ;;  8 oldest host minor, state version
    "\32\00\00\00"         ;; 12 flags: stateless 2, selects 16, sets chunks 32
    "\00\00\00\00\00\00\00\00" ;; 16 capabilities required: none
    "\01\00\00\00\00\00\00\00" ;; 24 optional: chunk lengths
    "\60\00\00\00" "\08\00\00\00" ;; 32 name, at 96, 8 bytes
    "\68\00\00\00" "\05\00\00\00" ;; 40 version, at 104, 5 bytes
    "\80\00\00\00" "\c0\00\00\00" ;; 48 record bytes 128, header bytes 192
    "\00\00\00\00\00\00\00\00") ;; 56 reserved
  (data (i32.const 96) "fcfs-wat" "1.0.0")

  (func (export "pol_abi_v1") (result i32) (i32.const 16))

  ;; Regions are cut from the memory upwards and never given back.
  (global $next (mut i32) (i32.const 128))
  (func (export "pol_buffer") (param $kind i32) (param $bytes i32) (result i32)
    (local $at i32) (local $end i32) (local $have i32)
    (if (i32.gt_u (local.get $kind) (i32.const 4)) ;; tenants, events, state, peers: not used
      (then (return (i32.const 0))))
    (local.set $at (global.get $next))
    (local.set $end
      (i32.and (i32.add (i32.add (local.get $at) (local.get $bytes)) (i32.const 15)) (i32.const -16)))
    (if (i32.lt_u (local.get $end) (local.get $at)) (then (return (i32.const 0))))
    (local.set $have (i32.shl (memory.size) (i32.const 16)))
    (if (i32.gt_u (local.get $end) (local.get $have))
      (then
        (if (i32.eq (i32.const -1)
              (memory.grow (i32.shr_u
                (i32.add (i32.sub (local.get $end) (local.get $have)) (i32.const 65535))
                (i32.const 16))))
          (then (return (i32.const 0))))))
    (global.set $next (local.get $end))
    (local.get $at))

  ;; No settings: anything longer than {} is an error, -4.
  (func (export "pol_init") (param $config_len i32) (result i32)
    (select (i32.const -4) (i32.const 0) (i32.gt_s (local.get $config_len) (i32.const 2))))

  ;; Does the record at $a come before the one at $b? By arrival_ns (8), then id (0).
  (func $before (param $a i32) (param $b i32) (result i32)
    (if (result i32) (i64.eq (i64.load offset=8 (local.get $a)) (i64.load offset=8 (local.get $b)))
      (then (i64.lt_u (i64.load (local.get $a)) (i64.load (local.get $b))))
      (else (i64.lt_s (i64.load offset=8 (local.get $a)) (i64.load offset=8 (local.get $b))))))

  (func $min (param $a i32) (param $b i32) (result i32)
    (select (local.get $a) (local.get $b) (i32.lt_u (local.get $a) (local.get $b))))

  ;; The address of a slot's record: records_ptr (32) + slot * record_stride (28).
  (func $record (param $h i32) (param $slot i32) (result i32)
    (i32.add (i32.load offset=32 (local.get $h))
             (i32.mul (local.get $slot) (i32.load offset=28 (local.get $h)))))

  ;; The address of decision $i: decisions_ptr (96) + 16 * $i.
  (func $entry (param $h i32) (param $i i32) (result i32)
    (i32.add (i32.load offset=96 (local.get $h)) (i32.shl (local.get $i) (i32.const 4))))

  ;; Puts a slot, whose record is at $r, in its place among the $n decisions.
  (func $insert (param $h i32) (param $slot i32) (param $r i32) (param $n i32)
    (local $low i32) (local $high i32) (local $mid i32)
    (local.set $high (local.get $n))
    (block $found
      (loop $halve
        (br_if $found (i32.ge_u (local.get $low) (local.get $high)))
        (local.set $mid (i32.shr_u (i32.add (local.get $low) (local.get $high)) (i32.const 1)))
        (if (call $before (local.get $r)
              (call $record (local.get $h) (i32.load (call $entry (local.get $h) (local.get $mid)))))
          (then (local.set $high (local.get $mid)))
          (else (local.set $low (i32.add (local.get $mid) (i32.const 1)))))
        (br $halve)))
    (memory.copy
      (call $entry (local.get $h) (i32.add (local.get $low) (i32.const 1)))
      (call $entry (local.get $h) (local.get $low))
      (i32.shl (i32.sub (local.get $n) (local.get $low)) (i32.const 4)))
    (i32.store (call $entry (local.get $h) (local.get $low)) (local.get $slot)))

  ;; Writes the slots of the earliest requests, in order, into the decisions; returns how many: at
  ;; most 16. Fuel is charged for what a turn of a loop may cost, so what is rare stands in a function
  ;; of its own; thousands of waiting requests then fit into a step's fuel.
  (func $choose (param $h i32) (result i32)
    (local $n i32) (local $most i32) (local $slot i32) (local $r i32) (local $last i32)
    (local.set $most (call $min (i32.const 16) (i32.load offset=92 (local.get $h)))) ;; decisions_cap
    (if (i32.eqz (local.get $most)) (then (return (i32.const 0))))
    (local.set $r (i32.load offset=32 (local.get $h)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $slot) (i32.load offset=24 (local.get $h)))) ;; n_slots
        (block $next
          ;; With prompt to compute? live (1), not decoding (4), remaining_prefill (44) not 0.
          (br_if $next
            (i32.ne (i32.and (i32.load offset=32 (local.get $r)) (i32.const 5)) (i32.const 1)))
          (br_if $next (i32.eqz (i32.load offset=44 (local.get $r))))
          ;; Full: the last one goes, unless it comes first.
          (if (i32.eq (local.get $n) (local.get $most))
            (then
              (br_if $next (i32.eqz (call $before (local.get $r) (local.get $last))))
              (local.set $n (i32.sub (local.get $n) (i32.const 1)))))
          (call $insert (local.get $h) (local.get $slot) (local.get $r) (local.get $n))
          (local.set $last
            (call $record (local.get $h) (i32.load (call $entry (local.get $h) (local.get $n)))))
          (local.set $n (i32.add (local.get $n) (i32.const 1))))
        (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
        (local.set $r (i32.add (local.get $r) (i32.load offset=28 (local.get $h)))) ;; record_stride
        (br $each)))
    (local.get $n))

  (func (export "pol_decide") (param $h i32) (result i32)
    (local $chosen i32) (local $n i32) (local $left i32) (local $tokens i32) (local $align i32)
    (local $r i32) (local $d i32)
    (local.set $chosen (call $choose (local.get $h)))
    (local.set $align (i32.load offset=76 (local.get $h))) ;; chunk_align
    ;; left = token_budget (68) - decode_tokens (164), not below 0
    (local.set $left (i32.sub (i32.load offset=68 (local.get $h))
      (call $min (i32.load offset=68 (local.get $h)) (i32.load offset=164 (local.get $h)))))
    (local.set $d (i32.load offset=96 (local.get $h)))
    (block $done
      (loop $each
        (br_if $done (i32.eq (local.get $n) (local.get $chosen)))
        (local.set $r (call $record (local.get $h) (i32.load (local.get $d))))
        ;; min(remaining_prefill, chunk_max (72), left)
        (local.set $tokens (call $min (local.get $left)
          (call $min (i32.load offset=44 (local.get $r)) (i32.load offset=72 (local.get $h)))))
        ;; Not its last chunk: a multiple of chunk_align.
        (if (i32.and (i32.lt_u (local.get $tokens) (i32.load offset=44 (local.get $r)))
                     (i32.gt_u (local.get $align) (i32.const 1)))
          (then (local.set $tokens (i32.sub (local.get $tokens)
            (i32.rem_u (local.get $tokens) (local.get $align))))))
        (br_if $done (i32.eqz (local.get $tokens)))
        (i32.store offset=4 (local.get $d) (local.get $tokens))
        (i32.store offset=8 (local.get $d) (i32.load (local.get $r))) ;; low half of id
        (i32.store offset=12 (local.get $d) (i32.const 0)) ;; action run, reserved, reason
        (local.set $left (i32.sub (local.get $left) (local.get $tokens)))
        (local.set $d (i32.add (local.get $d) (i32.const 16)))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br $each)))
    (local.get $n))

  ;; What a module may export besides, each with its capability in the descriptor (at 24) and its region
  ;; let through in pol_buffer. Whatever returns below 0 is an error code of SPEC.md, 8.
  ;;
  ;; (func (export "pol_observe") (param $n i32) (result i32))
  ;;   Before pol_decide: $n events of 32 bytes lie in region 6, what became of requests since the last
  ;;   step. Capability events, 0x20.
  ;; (func (export "pol_save") (param $room i32) (result i32))
  ;;   At a swap: writes the state into region 7, at most $room bytes, and returns its length; when it
  ;;   does not fit nothing is written, and it is asked again with more room. Capability state, 0x40,
  ;;   and a state version other than 0 in the descriptor.
  ;; (func (export "pol_load") (param $bytes i32) (param $version i32) (result i32))
  ;;   In a fresh copy, before its first step: region 7 holds what an earlier one saved.
  ;; (func (export "pol_last_error") (result i64))
  ;;   Asked after an error code: the address of a message in UTF-8, shifted left by 32, or its length.
)
