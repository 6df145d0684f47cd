//! Native tests: rustc --test.

extern crate std;

use super::*;
use pol::abi::{STATE_DECODING, STATE_LIVE};
use pol::{Decision, Header};
use std::vec::Vec;

/// xorshift: enough to shake an account.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % n
    }
}

const SLOTS: usize = 20;

/// Whatever the host does with an answer, a counter is what was computed for its tenant: prompt tokens,
/// and twice the generated ones.
#[test]
fn counters_are_what_was_computed() {
    let mut random = Random(42);
    let mut vtc = Vtc::new(&mut Config::new(b"{}"), SLOTS).unwrap();
    let mut table = [Record::default(); SLOTS];
    let mut changed: Vec<u32> = (0..SLOTS as u32).collect();
    let mut spent = [0i64; 3];
    let mut id = 0;
    for turn in 0..3000 {
        for (r, slot) in table.iter_mut().zip(0..) {
            if r.id == 0 {
                id += 1;
                let prompt = 1 + random.below(300);
                *r = Record {
                    id, tenant: slot % 3, state: STATE_LIVE, prompt_tokens: prompt,
                    remaining_prefill: prompt, max_new: u32::MAX, ..Record::default()
                };
                changed.push(slot);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let header = Header {
            token_budget: 200, chunk_max: 100, max_admit: 20, decisions_cap: 20,
            flags: if turn == 0 { FLAG_RESYNC } else { 0 }, ..Header::default()
        };
        let mut items = [Decision::default(); 20];
        let mut out = Out::new(&mut items);
        let step = Step::of(&header, &table, &changed);
        vtc.decide(&step, &mut out).unwrap();
        let promised: i64 = out.decisions().iter().map(|d| i64::from(d.tokens) * 1000).sum();
        let counted: i64 = (0..3).map(|t| vtc.accounts.counters.of(t)).sum();
        assert_eq!(counted, spent.iter().sum::<i64>() * 1000 + promised, "turn {}", turn);
        changed.clear();
        for d in out.decisions() {
            let r = &mut table[d.slot as usize];
            let tokens = random.below(d.tokens + 1); // The host may do less.
            r.state |= STATE_RUNNING;
            r.remaining_prefill -= tokens;
            r.service_tokens += u64::from(tokens);
            spent[r.tenant as usize] += i64::from(tokens);
            if r.remaining_prefill == 0 {
                r.state |= STATE_DECODING;
                r.generated = 1;
                spent[r.tenant as usize] += 2;
            }
            changed.push(d.slot);
        }
        for (r, slot) in table.iter_mut().zip(0..) {
            if r.state & STATE_DECODING != 0 && !changed.contains(&slot) {
                r.generated += 1;
                r.service_tokens += 1;
                spent[r.tenant as usize] += 2;
                if random.below(20) == 0 {
                    *r = Record::default(); // With its last token.
                }
                changed.push(slot);
            }
        }
    }
}

#[test]
fn the_heap_gives_the_least_counter() {
    let mut random = Random(7);
    let mut counters = Counters::new(50).unwrap();
    let mut turn = Turn::new().unwrap();
    for _ in 0..200 {
        turn.len = 1 + random.below(50) as usize;
        for tenant in 0..turn.len {
            turn.heap[tenant] = tenant as u32;
            counters.charge(tenant as u32, random.below(1000), 1000);
        }
        turn.heapify(&counters);
        let mut last = i64::MIN;
        while turn.len > 0 {
            let least = counters.of(turn.heap[0]);
            assert!(least >= last);
            last = least;
            turn.drop_first(&counters);
        }
    }
}

#[test]
fn counters_survive_a_swap() {
    let mut random = Random(5);
    let mut one = Vtc::new(&mut Config::new(b"{}"), SLOTS).unwrap();
    for tenant in 0..400 {
        one.accounts.counters.charge(tenant, random.below(1 << 20), 1000);
    }
    let mut small = [0; 100];
    let bytes = one.save(&mut small);
    assert!(bytes > small.len());
    let mut room = std::vec![0; bytes];
    assert_eq!(one.save(&mut room), bytes);
    let mut two = Vtc::new(&mut Config::new(b"{\"output_weight\":3}"), SLOTS).unwrap();
    two.load(&room, 1).unwrap();
    for tenant in 0..TENANTS as u32 {
        assert_eq!(two.accounts.counters.of(tenant), one.accounts.counters.of(tenant));
    }
    assert!(two.load(&room, 2).is_err() && two.load(&room[1..], 1).is_err());
}
