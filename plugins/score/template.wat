;; What every score policy is made of: this module, with the bodies of its last two functions, and
;; its name, replaced. It keeps nothing between steps: it scores what waits, keeps the 256 smallest
;; scores in a heap, sorts them, and gives them chunks until the budget is used.
;; Offsets are those of SPEC.md, 5 and 6.
(module
  (memory (export "memory") 1 256)
  ;; 16: the descriptor. 96: the version. 128: the name, at most 64 bytes.
  (data (i32.const 16)
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00"
    "\32\00\00\00" ;; flags: stateless 2, selects 16, sets chunks 32
    "\00\00\00\00\00\00\00\00" "\01\00\00\00\00\00\00\00" ;; optional: chunk lengths
    "\80\00\00\00" "\40\00\00\00" ;; 32 name, at 128
    "\60\00\00\00" "\01\00\00\00" ;; 40 version, at 96
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "1")
  (data (i32.const 128) "NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNN")

  (func (export "pol_abi_v1") (result i32) (i32.const 16))

  ;; Regions are cut from the memory upwards and never given back. The heap lies before them: 257
  ;; entries of score (f64), id (u64), slot (u32), padding, from 1024; the last is for moving.
  (global $next (mut i32) (i32.const 8192))
  (func (export "pol_buffer") (param $kind i32) (param $bytes i32) (result i32)
    (local $at i32) (local $end i32) (local $have i32)
    (if (i32.gt_u (local.get $kind) (i32.const 4)) (then (return (i32.const 0))))
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

  (func $min (param $a i32) (param $b i32) (result i32)
    (select (local.get $a) (local.get $b) (i32.lt_u (local.get $a) (local.get $b))))

  (func $record (param $h i32) (param $slot i32) (result i32)
    (i32.add (i32.load offset=32 (local.get $h))
             (i32.mul (local.get $slot) (i32.load offset=28 (local.get $h)))))

  ;; The address of an entry of the heap.
  (func $entry (param $i i32) (result i32)
    (i32.add (i32.const 1024) (i32.mul (local.get $i) (i32.const 24))))

  ;; Does the entry at $a come before the one at $b? By score, then id.
  (func $before (param $a i32) (param $b i32) (result i32)
    (i32.or
      (f64.lt (f64.load (local.get $a)) (f64.load (local.get $b)))
      (i32.and
        (f64.eq (f64.load (local.get $a)) (f64.load (local.get $b)))
        (i64.lt_u (i64.load offset=8 (local.get $a)) (i64.load offset=8 (local.get $b))))))

  (func $move (param $from i32) (param $to i32)
    (i64.store (local.get $to) (i64.load (local.get $from)))
    (i64.store offset=8 (local.get $to) (i64.load offset=8 (local.get $from)))
    (i32.store offset=16 (local.get $to) (i32.load offset=16 (local.get $from))))

  ;; Lets the entry at $e sink from the top of a heap of $n, whose last in order is on top.
  (func $sink (param $e i32) (param $n i32)
    (local $at i32) (local $child i32)
    (block $done
      (loop $down
        (local.set $child (i32.add (i32.shl (local.get $at) (i32.const 1)) (i32.const 1)))
        (br_if $done (i32.ge_u (local.get $child) (local.get $n)))
        (if (i32.lt_u (i32.add (local.get $child) (i32.const 1)) (local.get $n))
          (then
            (local.set $child (i32.add (local.get $child)
              (call $before (call $entry (local.get $child))
                (call $entry (i32.add (local.get $child) (i32.const 1))))))))
        (br_if $done (i32.eqz (call $before (local.get $e) (call $entry (local.get $child)))))
        (call $move (call $entry (local.get $child)) (call $entry (local.get $at)))
        (local.set $at (local.get $child))
        (br $down)))
    (call $move (local.get $e) (call $entry (local.get $at))))

  ;; Puts the entry at $e at the end of a heap of $n and lets it rise.
  (func $rise (param $e i32) (param $n i32)
    (local $at i32) (local $up i32)
    (local.set $at (local.get $n))
    (block $done
      (loop $more
        (br_if $done (i32.eqz (local.get $at)))
        (local.set $up (i32.shr_u (i32.sub (local.get $at) (i32.const 1)) (i32.const 1)))
        (br_if $done (i32.eqz (call $before (call $entry (local.get $up)) (local.get $e))))
        (call $move (call $entry (local.get $up)) (call $entry (local.get $at)))
        (local.set $at (local.get $up))
        (br $more)))
    (call $move (local.get $e) (call $entry (local.get $at))))

  ;; Fills the heap with the requests of the smallest scores; returns how many.
  (func $choose (param $h i32) (result i32)
    (local $n i32) (local $most i32) (local $slot i32) (local $r i32) (local $e i32) (local $s f64)
    (local.set $most (call $min (i32.const 256) (i32.load offset=92 (local.get $h)))) ;; decisions_cap
    (if (i32.eqz (local.get $most)) (then (return (i32.const 0))))
    (local.set $e (call $entry (i32.const 256)))
    (local.set $r (i32.load offset=32 (local.get $h)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $slot) (i32.load offset=24 (local.get $h)))) ;; n_slots
        (block $next
          ;; With prompt to compute? live (1), not decoding (4), remaining_prefill (44) not 0.
          (br_if $next
            (i32.ne (i32.and (i32.load offset=32 (local.get $r)) (i32.const 5)) (i32.const 1)))
          (br_if $next (i32.eqz (i32.load offset=44 (local.get $r))))
          (local.set $s (call $score (local.get $r) (local.get $h)
            (i32.sub (i32.load offset=68 (local.get $h))
              (call $min (i32.load offset=68 (local.get $h)) (i32.load offset=164 (local.get $h))))))
          ;; Not a number: last.
          (f64.store (local.get $e) (select (local.get $s) (f64.const inf)
            (f64.eq (local.get $s) (local.get $s))))
          (i64.store offset=8 (local.get $e) (i64.load (local.get $r)))
          (i32.store offset=16 (local.get $e) (local.get $slot))
          (if (i32.eq (local.get $n) (local.get $most))
            (then
              (br_if $next (i32.eqz (call $before (local.get $e) (i32.const 1024))))
              (call $sink (local.get $e) (local.get $n)))
            (else
              (call $rise (local.get $e) (local.get $n))
              (local.set $n (i32.add (local.get $n) (i32.const 1))))))
        (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
        (local.set $r (i32.add (local.get $r) (i32.load offset=28 (local.get $h)))) ;; record_stride
        (br $each)))
    (local.get $n))

  ;; Turns the heap into a list in order.
  (func $sort (param $n i32)
    (local $last i32)
    (block $done
      (loop $each
        (br_if $done (i32.le_u (local.get $n) (i32.const 1)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (local.set $last (call $entry (local.get $n)))
        (call $move (local.get $last) (call $entry (i32.const 256)))
        (call $move (i32.const 1024) (local.get $last))
        (call $sink (call $entry (i32.const 256)) (local.get $n))
        (br $each))))

  ;; Down to a multiple of $align, unless it is all that remains.
  (func $aligned (param $tokens i32) (param $remaining i32) (param $align i32) (result i32)
    (if (result i32)
      (i32.and (i32.lt_u (local.get $tokens) (local.get $remaining))
               (i32.gt_u (local.get $align) (i32.const 1)))
      (then (i32.sub (local.get $tokens) (i32.rem_u (local.get $tokens) (local.get $align))))
      (else (local.get $tokens))))

  (func (export "pol_decide") (param $h i32) (result i32)
    (local $chosen i32) (local $i i32) (local $n i32) (local $left i32) (local $tokens i32)
    (local $align i32) (local $r i32) (local $d i32) (local $rest i32)
    (local.set $chosen (call $choose (local.get $h)))
    (call $sort (local.get $chosen))
    (local.set $align (i32.load offset=76 (local.get $h))) ;; chunk_align
    ;; left = token_budget (68) - decode_tokens (164), not below 0
    (local.set $left (i32.sub (i32.load offset=68 (local.get $h))
      (call $min (i32.load offset=68 (local.get $h)) (i32.load offset=164 (local.get $h)))))
    (local.set $d (i32.load offset=96 (local.get $h)))
    (block $done
      (loop $each
        (br_if $done (i32.eq (local.get $i) (local.get $chosen)))
        (local.set $r (call $record (local.get $h)
          (i32.load offset=16 (call $entry (local.get $i)))))
        (local.set $rest (i32.load offset=44 (local.get $r)))
        ;; min(remaining_prefill, chunk_max (72), left): when nothing fits, the step is full.
        (local.set $tokens (call $aligned
          (call $min (local.get $left)
            (call $min (local.get $rest) (i32.load offset=72 (local.get $h))))
          (local.get $rest) (local.get $align)))
        (br_if $done (i32.eqz (local.get $tokens)))
        ;; And what the expression says; when that is nothing, this request waits.
        (local.set $tokens (call $aligned
          (call $min (local.get $tokens) (i32.trunc_sat_f64_u
            (call $chunk (local.get $r) (local.get $h) (local.get $left))))
          (local.get $rest) (local.get $align)))
        (if (local.get $tokens)
          (then
            (i32.store (local.get $d) (i32.load offset=16 (call $entry (local.get $i))))
            (i32.store offset=4 (local.get $d) (local.get $tokens))
            (i32.store offset=8 (local.get $d) (i32.load (local.get $r))) ;; low half of id
            (i32.store offset=12 (local.get $d) (i32.const 0)) ;; action run, reserved, reason
            (local.set $left (i32.sub (local.get $left) (local.get $tokens)))
            (local.set $d (i32.add (local.get $d) (i32.const 16)))
            (local.set $n (i32.add (local.get $n) (i32.const 1)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $each)))
    (local.get $n))

  ;; Replaced by the score: the addresses of a record and the header, and the tokens left.
  (func $score (param $r i32) (param $h i32) (param $left i32) (result f64) (f64.const 0))
  ;; Replaced by the chunk length, if one is given.
  (func $chunk (param $r i32) (param $h i32) (param $left i32) (result f64) (f64.const inf))
)
