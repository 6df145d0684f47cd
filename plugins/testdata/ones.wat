;; Sets every chunk of another module's answer to one token; it cannot select. By the token budget it
;; misbehaves: 7 leaves the last entry out, 8 changes a reason, 9 an action, 10 makes chunks too long,
;; 11 traps, 12 returns an error.
(module
  (memory (export "memory") 16)
  (data (i32.const 16) ;; the descriptor: abi/SPEC.md, 8
    "POL1" "\40\00" "\00\00" "\00\00" "\00\00" "\22\00\00\00"
    "\00\00\00\00\00\00\00\00" "\01\02\00\00\00\00\00\00"
    "\60\00\00\00" "\04\00\00\00" "\a0\00\00\00" "\05\00\00\00"
    "\80\00\00\00" "\c0\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 96) "ones")
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
  (func (export "pol_decide") (param $h i32) (result i32)
    (local $budget i32) (local $at i32) (local $left i32)
    (local.set $budget (i32.load offset=68 (local.get $h)))
    (local.set $at (i32.load offset=96 (local.get $h)))
    (local.set $left (i32.load offset=168 (local.get $h)))
    (if (i32.eq (local.get $budget) (i32.const 11)) (then (unreachable)))
    (if (i32.eq (local.get $budget) (i32.const 12)) (then (return (i32.const -1))))
    (block $done
      (loop $more
        (br_if $done (i32.eqz (local.get $left)))
        (if (i32.eqz (i32.load8_u offset=12 (local.get $at))) (then
          (i32.store offset=4 (local.get $at) (select (i32.const 1000000000) (i32.const 1)
            (i32.eq (local.get $budget) (i32.const 10))))
          (if (i32.eq (local.get $budget) (i32.const 8)) (then
            (i32.store16 offset=14 (local.get $at) (i32.const 4242))))
          (if (i32.eq (local.get $budget) (i32.const 9)) (then
            (i32.store8 offset=12 (local.get $at) (i32.const 3))))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $more)))
    (i32.sub (i32.load offset=168 (local.get $h)) (i32.eq (local.get $budget) (i32.const 7))))
)
