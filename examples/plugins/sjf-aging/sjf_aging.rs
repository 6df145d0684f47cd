//! sjf-aging: the prompt with the least left to compute first; waiting counts in its favour.
//!
//! A request's rank is `remaining_prefill - aging * seconds waited`, the smallest first, ties by id.
//! All requests age at one rate, so that the order between two of them does not depend on the time:
//! `remaining_prefill + aging * arrival` ranks alike, and only what changed needs a new place.
#![no_std]

use pol::{policy, Chunks, Config, Error, Key, Order, Out, Policy, Record, Step};

struct SjfAging {
    order: Order,
    /// Tokens of rank that a second of waiting is worth.
    aging: i64,
}

impl SjfAging {
    /// The rank in thousandths of a token, with the arrival in milliseconds: no rounding of the rate,
    /// and no overflow before the clock's own.
    fn key(aging: i64, r: &Record) -> Option<Key> {
        if !r.prefills() {
            return None;
        }
        let size = i64::from(r.remaining_prefill) * 1000;
        let first = size.wrapping_add(aging.wrapping_mul(r.arrival_ns / 1_000_000));
        Some(Key { first, second: 0, id: r.id })
    }
}

impl Policy for SjfAging {
    const NAME: &'static str = "sjf-aging";
    const VERSION: &'static str = "1.0.0";

    fn new(config: &mut Config, slots: usize) -> Result<Self, Error> {
        let aging = config.int("aging_tokens_per_s", 200, 0..=1_000_000)?;
        Ok(SjfAging { order: Order::new(slots)?, aging })
    }

    fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error> {
        let aging = self.aging;
        self.order.update(step, |r| SjfAging::key(aging, r))?;
        let mut chunks = Chunks::of(step.header);
        for &slot in self.order.slots() {
            let r = step.record(slot);
            match chunks.take(r.remaining_prefill) {
                Some(tokens) if out.run(slot, r, tokens) => {}
                _ => break,
            }
        }
        Ok(())
    }
}

policy!(SjfAging);
