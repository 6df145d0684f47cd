//! Each helper against its naive twin on random input. One test, because a guest has one memory and
//! is called by one thread.

extern crate std;

use std::vec::Vec;

use crate::guest::written;
use crate::{abi, buffer, last_error, start};
use crate::{chunk_within, Chunks, Config, Counters, Decision, Error, Header, Key, Order, Out, Pages};
use crate::{Peer, Policy, Record, Running, Step, Tenant, Top};

/// xorshift: enough to shake a data structure.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % n
    }
}

fn key_of(r: &Record) -> Option<Key> {
    let key = Key { first: r.arrival_ns, second: -i64::from(r.priority), id: r.id };
    if r.prefills() {
        Some(key)
    } else {
        None
    }
}

fn naive(table: &[Record]) -> Vec<u32> {
    let mut all: Vec<(Key, u32)> =
        table.iter().zip(0..).filter_map(|(r, slot)| key_of(r).map(|k| (k, slot))).collect();
    all.sort();
    all.into_iter().map(|(_, slot)| slot).collect()
}

const SLOTS: usize = 200;

fn order_follows_the_changed_list(random: &mut Random) {
    let mut order = Order::new(SLOTS).unwrap();
    let mut table = [Record::default(); SLOTS];
    let mut id = 0;
    for turn in 0..5000 {
        let resync = turn == 0 || random.below(100) == 0;
        let header = Header { flags: u32::from(resync) * abi::FLAG_RESYNC, ..Header::default() };
        let odds = [0, 2, 10, 100][random.below(4) as usize];
        let mut changed = Vec::new();
        for (r, slot) in table.iter_mut().zip(0..) {
            let change = random.below(100) < odds;
            if change {
                if r.id == 0 || random.below(2) == 0 {
                    id += 1;
                    r.id = id;
                }
                r.arrival_ns = i64::from(random.below(5));
                r.priority = random.below(5) as i32 - 2;
                r.state = [0, 1, 1, 1, 3, 7][random.below(6) as usize];
                r.remaining_prefill = random.below(4);
            }
            if change || (resync && r.live()) {
                changed.push(slot);
            }
        }
        order.update(&Step::of(&header, &table, &changed), key_of).unwrap();
        assert_eq!(order.slots(), naive(&table), "turn {}", turn);
    }
    let header = Header::default();
    let beyond = [Record::default(); SLOTS + 1];
    assert!(order.update(&Step::of(&header, &beyond, &[SLOTS as u32]), key_of).is_err());
}

fn top_keeps_the_first(random: &mut Random) {
    let mut top = Top::new(20).unwrap();
    for turn in 0..500 {
        let mut table = [Record::default(); SLOTS];
        top.clear();
        for (r, slot) in table.iter_mut().zip(0..) {
            r.id = u64::from(slot) + 1;
            r.arrival_ns = i64::from(random.below(30));
            r.state = u32::from(random.below(4) > 0);
            r.remaining_prefill = 1;
            if let Some(key) = key_of(r) {
                top.offer(key, slot);
            }
        }
        let got: Vec<u32> = top.sorted().iter().map(|e| e.1).collect();
        let want = naive(&table);
        assert_eq!(got, want[..want.len().min(20)], "turn {}", turn);
    }
}

fn chunks_keep_budget_and_alignment() {
    let cases = [
        // budget, decodes, max, align, remaining, want
        (100, 0, 50, 0, 30, Some(30)),
        (100, 0, 50, 0, 80, Some(50)),
        (100, 80, 50, 0, 80, Some(20)),
        (100, 100, 50, 0, 80, None),
        (100, 200, 50, 0, 80, None),
        (100, 0, 50, 16, 80, Some(48)),
        (100, 0, 50, 16, 50, Some(50)),
        (10, 0, 50, 16, 80, None),
        (10, 0, 50, 16, 10, Some(10)),
    ];
    for &(token_budget, decode_tokens, chunk_max, chunk_align, remaining, want) in &cases {
        let header =
            Header { token_budget, decode_tokens, chunk_max, chunk_align, ..Header::default() };
        let mut chunks = Chunks::of(&header);
        let before = chunks.left();
        let got = chunks.take(remaining);
        assert_eq!(got, want, "{:?}", header);
        assert_eq!(chunks.left(), before - got.unwrap_or(0));
    }
}

struct Probe {
    number: i64,
    flag: bool,
}

impl Policy for Probe {
    const NAME: &'static str = "probe";
    const VERSION: &'static str = "9";

    fn new(config: &mut Config, slots: usize) -> Result<Self, Error> {
        assert_eq!(slots, 10);
        let number = config.int("number", 5, -10..=1_000_000_000_000_000_000)?;
        Ok(Probe { number, flag: config.bool("flag", true)? })
    }

    fn decide(&mut self, _: &Step, _: &mut Out) -> Result<(), Error> {
        Ok(())
    }
}

fn settings_are_checked() {
    let good: [(&str, i64, bool); 6] = [
        ("", 5, true),
        ("{}", 5, true),
        (" { } ", 5, true),
        ("{\"number\":7}", 7, true),
        ("{\n \"flag\" : false ,\t\"number\" : -10\r\n}", -10, false),
        ("{\"number\":999999999999999999}", 999_999_999_999_999_999, true),
    ];
    for &(text, number, flag) in &good {
        let mut running = Running::<Probe>::NONE;
        assert_eq!(init(&mut running, text), 0, "{}", text);
        let probe = running.policy().unwrap();
        assert_eq!((probe.number, probe.flag), (number, flag), "{}", text);
    }
    let bad = [
        ("{\"number\":-11}", "number must be a whole number from -10 to 1000000000000000000"),
        ("{\"number\":1.5}", "number must be"),
        ("{\"number\":-}", "number must be"),
        ("{\"number\":\"7\"}", "number must be"),
        ("{\"number\":9999999999999999999}", "number must be"),
        ("{\"flag\":1}", "flag must be true or false"),
        ("{\"numbr\":1}", "there is no setting numbr"),
        ("{\"a\":{\"number\":[1,\"}\\\"\"]},\"number\":2}", "there is no setting a"),
        ("[]", "not a JSON object"),
        ("{\"number\":7", "not a JSON object"),
        ("{\"number\":}", "not a JSON object"),
        ("{\"number\" 7}", "not a JSON object"),
        ("{\"number", "not a JSON object"),
        ("{\"flag\":true,}", "not a JSON object"),
        ("{,}", "not a JSON object"),
    ];
    for &(text, want) in &bad {
        let mut running = Running::<Probe>::NONE;
        assert_eq!(init(&mut running, text), abi::CODE_BAD_CONFIG, "{}", text);
        assert!(written().contains(want), "{}: {}", text, written());
        assert_eq!(last_error() as u32 as usize, written().len());
    }
}

fn init(running: &mut Running<Probe>, text: &str) -> i32 {
    let at = buffer(abi::BUFFER_CONFIG, 256);
    buffer(abi::BUFFER_RECORDS, 10 * core::mem::size_of::<Record>());
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len()) };
    start(running, text.len() as i32)
}

fn regions_are_handed_out() {
    assert_eq!(buffer(-1, 8), 0);
    assert_eq!(buffer(9, 8), 0);
    assert_eq!(buffer(abi::BUFFER_STATE, 1 << 31), 0);
    let small = buffer(abi::BUFFER_EVENTS, 100);
    assert!(small != 0 && small % 16 == 0);
    assert_eq!(buffer(abi::BUFFER_EVENTS, 50), small);
    assert_ne!(buffer(abi::BUFFER_EVENTS, 5000), small);
}

fn answers_are_bounded() {
    let mut items = [Decision::default(); 1];
    let mut out = Out::new(&mut items);
    let record = Record { id: 0x1122_3344_5566_7788, ..Record::default() };
    assert!(out.is_empty() && out.skip(3, &record) && !out.run(4, &record, 1));
    let want = Decision {
        slot: 3,
        id_low: 0x5566_7788,
        action: abi::ACTION_SKIP,
        ..Decision::default()
    };
    assert_eq!(out.decisions(), [want]);
}

#[test]
fn helpers() {
    let mut random = Random(42);
    order_follows_the_changed_list(&mut random);
    top_keeps_the_first(&mut random);
    chunks_keep_budget_and_alignment();
    settings_are_checked();
    regions_are_handed_out();
    answers_are_bounded();
    assert!(crate::take::<u8>(1).is_none(), "memory is handed out while deciding");
}

#[test]
fn chunk_within_the_target() {
    let mut h = Header { chunk_max: 2048, ..Header::default() };
    assert_eq!(chunk_within(&h, 0, 1), 2048);
    h.cost_fixed_us = 1000;
    h.cost_token_ns = 10_000;
    h.decode_tokens = 10;
    assert_eq!(chunk_within(&h, 0, 6_100_000), 500);
    assert_eq!(chunk_within(&h, 0, 1_000_000), 0);
    assert_eq!(chunk_within(&h, 0, 1 << 60), 2048);
    h.cost_ctx_ps = 10_000;
    assert_eq!(chunk_within(&h, 1000, 6_100_000), 236);
}

#[test]
fn counters_do_not_save_up_rest() {
    let mut c = Counters::new(3).unwrap();
    c.enter(0);
    c.charge(0, 100, 0);
    c.enter(1);
    assert_eq!((c.of(0), c.of(1)), (100_000, 100_000));
    c.charge(1, 100, 2000);
    assert_eq!(c.of(1), 150_000);
    c.leave(0);
    c.charge(1, 1, 1000);
    c.enter(0);
    assert_eq!(c.of(0), 151_000);
    c.enter(7);
    assert_eq!((c.of(2), c.of(7)), (151_000, 151_000));
    c.charge(1, 7, 3000);
    c.refund(1, 7, 3000);
    assert_eq!(c.of(1), 151_000);
    let mut restored = Counters::new(3).unwrap();
    restored.restore(0, 500, true);
    restored.restore(1, 100, true);
    restored.restore(2, 50, false);
    for tenant in 0..3 {
        restored.enter(tenant); // The third rested meanwhile.
    }
    assert_eq!([0, 1, 2].map(|t| restored.of(t)), [500, 100, 100]);
}

#[test]
fn pages_as_the_host_counts_them() {
    let mut h = Header { page_tokens: 16, free_pages: 10, n_running: 2, ..Header::default() };
    h.reserve_pages = 3;
    let mut pages = Pages::of(&h);
    let mut waits = Record { state: abi::STATE_LIVE, prompt_tokens: 100, ..Record::default() };
    waits.cached_tokens = 24;
    waits.remaining_prefill = 76;
    waits.pages_needed = 6;
    assert_eq!([8, 9, 76].map(|n| pages.needed(&waits, n)), [1, 2, 6]);
    assert!(pages.take(&waits, 76) && pages.free == 4);
    assert!(!pages.take(&waits, 8) && pages.free == 4, "the reserve stays free");
    let mut runs = Record { state: abi::STATE_LIVE | abi::STATE_RUNNING, ..Record::default() };
    runs.prompt_tokens = 60;
    runs.generated = 4;
    runs.remaining_prefill = 34;
    runs.pages_needed = 2;
    assert_eq!([2, 3].map(|n| pages.needed(&runs, n)), [0, 1]);
    assert!(!pages.take(&runs, 34) && pages.take(&runs, 18) && pages.free == 3);
    assert!(pages.take(&runs, 2) && pages.free == 3, "what needs none always fits");
    h.n_running = 0;
    h.free_pages = 7;
    assert!(Pages::of(&h).take(&waits, 76), "nobody else could free the reserve");
}

#[test]
fn tenants_and_peers() {
    let header = Header::default();
    let mut step = Step::of(&header, &[], &[]);
    assert!(step.tenant(0).is_none() && step.peer(1).is_none());
    let (tenants, peers) = ([Tenant::default(); 2], [Peer::default(); 1]);
    step.tenants = &tenants;
    step.peers = &peers;
    assert!(step.tenant(1).is_some() && step.tenant(2).is_none());
    assert!(step.peer(1).is_some() && step.peer(0).is_none() && step.peer(2).is_none());
}
