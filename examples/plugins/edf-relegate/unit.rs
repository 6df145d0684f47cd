//! Native tests: rustc --test.

extern crate std;

use super::*;
use pol::abi::STATE_LIVE;
use std::vec::Vec;

/// xorshift: enough to shake a rule.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) % n
    }
}

/// The most requests that can be in time, by trying every set of them.
fn best(jobs: &[(u64, u64)]) -> u32 {
    let in_time = |set: u32| {
        let mut end = 0;
        (0..jobs.len()).filter(|&i| set & 1 << i != 0).all(|i| {
            end += jobs[i].0;
            end <= jobs[i].1
        })
    };
    (0..1u32 << jobs.len()).filter(|&set| in_time(set)).map(u32::count_ones).max().unwrap()
}

#[test]
fn the_fewest_are_relegated() {
    let mut random = Random(42);
    let slots = 12;
    let mut edf = Edf::new(&mut Config::new(b"{\"margin_percent\":0}"), slots).unwrap();
    for round in 0..2000 {
        let header = Header {
            now_ns: 1_000_000, token_budget: 100, chunk_max: 100, cost_token_ns: 1000,
            flags: pol::abi::FLAG_RESYNC, decisions_cap: 20, ..Header::default()
        };
        let n = 1 + random.below(slots as u64 - 1) as usize;
        let records: Vec<Record> = (0..n)
            .map(|i| {
                let tokens = 1 + random.below(100) as u32;
                let time = 1 + random.below(400) as i64;
                Record {
                    id: i as u64 + 1, state: STATE_LIVE, prompt_tokens: tokens,
                    remaining_prefill: tokens, deadline_ns: header.now_ns + time * 1000,
                    ..Record::default()
                }
            })
            .collect();
        let changed: Vec<u32> = (0..n as u32).collect();
        let step = Step::of(&header, &records, &changed);
        edf.order.update(&step, |r| place(0, r)).unwrap();
        let (late, end) = edf.relegate(&step);
        assert_eq!((late, end), (0, n));
        let kept = edf.order.slots().iter().filter(|&&s| !edf.aside[s as usize]).count() as u32;
        let jobs: Vec<(u64, u64)> = edf
            .order
            .slots()
            .iter()
            .map(|&s| &records[s as usize])
            .map(|r| (u64::from(r.remaining_prefill), (r.deadline_ns - header.now_ns) as u64 / 1000))
            .collect();
        assert_eq!(kept, best(&jobs), "round {}: {:?}", round, jobs);
        edf.aside.fill(false);
    }
}

#[test]
fn figures_at_their_ends_do_no_harm() {
    let h = Header {
        cost_token_ns: u32::MAX, cost_fixed_us: u32::MAX, cost_ctx_ps: u32::MAX,
        decode_tokens: u32::MAX, ..Header::default()
    };
    let most = u32::MAX;
    let r = Record { prompt_tokens: most, remaining_prefill: most, ..Record::default() };
    let mut length = Length::of(&h, Costs::of(&h, 1000));
    length.add(&r, most, 0);
    assert_eq!(length.fits(&r, most), 0);
    assert_eq!(due(5, &Record { arrival_ns: i64::MAX, ..r }), i64::MAX);
}
