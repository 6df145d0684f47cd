//! edf-relegate: the earliest deadline first; what cannot be in time makes room for what can.
//!
//! Plain earliest-deadline-first collapses under overload: it works on requests that are late already,
//! and so makes the next ones late too. Here the requests that the engine cannot finish in time, by its own
//! cost figures, are relegated to the background (Niyama, arXiv 2503.22562). Which ones: the rule of Moore
//! and Hodgson, which leaves the fewest late. Going through the deadlines in order, whenever the work so
//! far does not fit before the next deadline, the longest of it is put aside. The background gets a
//! fixed share of the tokens, by deadline, so that nobody is forgotten.
#![no_std]

use pol::abi::{CODE_OUT_OF_MEMORY, STATE_RUNNING};
use pol::{policy, take, Chunks, Config, Decision, Error, Header, Key, Order, Out, Policy, Record, Step};

/// How many deadlines to come are looked at in a step.
const HORIZON: usize = 512;

const REASON_IN_TIME: u16 = 1;
const REASON_RELEGATED: u16 = 2;
const REASON_LATE: u16 = 3;

/// What the engine's cost figures say of work, in nanoseconds, the margin included.
struct Costs {
    token: u64,
    /// What a step costs before its first prompt token: the fixed cost, and its decodes.
    begin: u64,
    /// The part of that which each prompt token has to bear in a full step.
    share: u64,
    ctx_ps: u64,
    percent: u64,
}

impl Costs {
    fn of(h: &Header, margin: u64) -> Costs {
        let token = u64::from(h.cost_token_ns);
        let decodes = u64::from(h.decode_tokens).saturating_mul(token);
        let begin = decodes.saturating_add(u64::from(h.cost_fixed_us) * 1000);
        let room = u64::from(h.token_budget.saturating_sub(h.decode_tokens)).max(1);
        let (ctx_ps, percent) = (u64::from(h.cost_ctx_ps), 100 + margin);
        Costs { token, begin, share: begin / room, ctx_ps, percent }
    }

    fn with_margin(&self, ns: u64) -> u64 {
        ns.saturating_mul(self.percent) / 100
    }

    /// Of one token more of a prompt with this context behind it.
    fn per_token(&self, context: u64) -> u64 {
        self.with_margin(self.token.saturating_add(context.saturating_mul(self.ctx_ps) / 1000))
    }

    /// Of all that is left of a prompt, with its part of what the steps cost before.
    fn work(&self, r: &Record) -> u64 {
        let n = u64::from(r.remaining_prefill);
        let context = done(r) + n / 2;
        n.saturating_mul(self.per_token(context).saturating_add(self.with_margin(self.share)))
    }
}

fn done(r: &Record) -> u64 {
    u64::from(r.prompt_tokens.saturating_sub(r.remaining_prefill))
}

/// A step as far as it is planned. It must end before the first deadline of those that end with it:
/// what would make it longer waits for the next one.
struct Length {
    costs: Costs,
    known: bool,
    so_far: u64,
    most: u64,
}

impl Length {
    fn of(h: &Header, costs: Costs) -> Length {
        let so_far = costs.with_margin(costs.begin);
        Length { so_far, costs, known: h.cost_token_ns > 0, most: u64::MAX }
    }

    /// How many of so many tokens still fit.
    fn fits(&self, r: &Record, tokens: u32) -> u32 {
        let each = self.costs.per_token(done(r) + u64::from(tokens) / 2).max(1);
        let fits = self.most.saturating_sub(self.so_far) / each;
        if self.known {
            fits.min(u64::from(tokens)) as u32
        } else {
            tokens
        }
    }

    /// The step gets these tokens of a request; one that ends with them has so much time left.
    fn add(&mut self, r: &Record, tokens: u32, left: u64) {
        let each = self.costs.per_token(done(r) + u64::from(tokens) / 2);
        self.so_far = self.so_far.saturating_add(each.saturating_mul(u64::from(tokens)));
        if tokens == r.remaining_prefill {
            self.most = self.most.min(left);
        }
    }
}

/// The work that is to be done in time, the longest on top.
struct Heap {
    work: &'static mut [u64],
    slot: &'static mut [u32],
    len: usize,
}

impl Heap {
    fn swap(&mut self, a: usize, b: usize) {
        self.work.swap(a, b);
        self.slot.swap(a, b);
    }

    fn push(&mut self, work: u64, slot: u32) {
        let mut at = self.len;
        self.len += 1;
        self.work[at] = work;
        self.slot[at] = slot;
        while at > 0 && self.work[(at - 1) / 2] < self.work[at] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Takes the longest out.
    fn pop(&mut self) -> (u64, u32) {
        let top = (self.work[0], self.slot[0]);
        self.len -= 1;
        self.swap(0, self.len);
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= self.len {
                return top;
            }
            if child + 1 < self.len && self.work[child + 1] > self.work[child] {
                child += 1;
            }
            if self.work[child] <= self.work[at] {
                return top;
            }
            self.swap(at, child);
            at = child;
        }
    }
}

struct Edf {
    order: Order,
    heap: Heap,
    /// By slot: relegated in this step.
    aside: &'static mut [bool],
    /// What the background may claim, in hundredths of a token: at most a step's tokens.
    claim: i64,
    within_ns: i64,
    margin: u64,
    background: i64,
}

/// When a request is due: its own deadline, or the usual time after its arrival; without either, never.
fn due(within_ns: i64, r: &Record) -> i64 {
    match (r.deadline_ns, within_ns) {
        (0, 0) => i64::MAX,
        (0, within) => r.arrival_ns.saturating_add(within),
        (deadline, _) => deadline,
    }
}

fn place(within_ns: i64, r: &Record) -> Option<Key> {
    if r.prefills() {
        Some(Key { first: due(within_ns, r), second: r.arrival_ns, id: r.id })
    } else {
        None
    }
}

/// The nanoseconds until a request is due.
fn left(within_ns: i64, h: &Header, r: &Record) -> u64 {
    due(within_ns, r).saturating_sub(h.now_ns).max(0) as u64
}

impl Edf {
    /// Puts aside what cannot be in time. Returns how many of the order are late already, and where the
    /// look ahead ends.
    fn relegate(&mut self, step: &Step) -> (usize, usize) {
        let h = step.header;
        let late = self.order.find(&Key { first: h.now_ns.saturating_add(1), second: i64::MIN, id: 0 });
        let end = self.order.slots().len().min(late + HORIZON);
        if h.cost_token_ns == 0 {
            return (late, late); // Nothing is known of time: plain earliest deadline first.
        }
        let costs = Costs::of(h, self.margin);
        let mut before = 0u64; // The work up to here, without what is put aside.
        self.heap.len = 0;
        for &slot in &self.order.slots()[late..end] {
            let r = step.record(slot);
            let work = costs.work(r);
            self.heap.push(work, slot);
            before = before.saturating_add(work);
            if before > left(self.within_ns, h, r) {
                let (work, slot) = self.heap.pop();
                before = before.saturating_sub(work);
                self.aside[slot as usize] = true;
            }
        }
        (late, end)
    }

    /// Lists requests until the step is full: those in time by deadline, and the background when its
    /// claim pays for a chunk or nothing else is left.
    fn list(&mut self, step: &Step, out: &mut Out, late: usize, end: usize) {
        let slots = self.order.slots();
        let aside = &self.aside;
        let mut timely = slots[late..].iter().filter(|&&slot| !aside[slot as usize]);
        let passed = slots[..late].iter().map(|&slot| (slot, REASON_LATE));
        let relegated = slots[late..end].iter().filter(|&&slot| aside[slot as usize]);
        let mut background =
            passed.chain(relegated.map(|&slot| (slot, REASON_RELEGATED))).peekable();
        let mut chunks = Chunks::of(step.header);
        let most = i64::from(step.header.token_budget) * 100;
        let mut starts = step.header.max_admit;
        let mut length = Length::of(step.header, Costs::of(step.header, self.margin));
        loop {
            let paid = background.peek().map_or(false, |&(slot, _)| {
                let tokens = chunks.clone().take(step.record(slot).remaining_prefill);
                self.claim >= i64::from(tokens.unwrap_or(0)) * 100
            });
            let behind = if paid { background.next() } else { None };
            let next = behind
                .or_else(|| timely.next().map(|&slot| (slot, REASON_IN_TIME)))
                .or_else(|| background.next());
            let (slot, reason) = match next {
                Some(next) => next,
                None => return,
            };
            let r = step.record(slot);
            if r.state & STATE_RUNNING == 0 {
                if starts == 0 {
                    continue; // The host would not let it in: the tokens are for those begun.
                }
                starts -= 1;
            }
            let longest = chunks.clone().take(r.remaining_prefill).unwrap_or(0);
            let tokens = match chunks.take_within(r.remaining_prefill, length.fits(r, longest)) {
                Some(tokens) => tokens,
                None => return,
            };
            let timely = reason == REASON_IN_TIME;
            let time = if timely { left(self.within_ns, step.header, r) } else { u64::MAX };
            length.add(r, tokens, time);
            let id_low = r.id as u32;
            if !out.add(Decision { slot, tokens, id_low, reason, ..Decision::default() }) {
                return;
            }
            self.claim += i64::from(tokens) * self.background;
            if !timely {
                self.claim -= i64::from(tokens) * 100;
            }
            self.claim = self.claim.clamp(0, most);
        }
    }
}

impl Policy for Edf {
    const NAME: &'static str = "edf-relegate";
    const VERSION: &'static str = "1.0.0";

    fn new(config: &mut Config, slots: usize) -> Result<Self, Error> {
        const NONE: Error = Error::new(CODE_OUT_OF_MEMORY, "no memory for the deadlines to come");
        let heap = Heap {
            work: take(HORIZON + 1).ok_or(NONE)?,
            slot: take(HORIZON + 1).ok_or(NONE)?,
            len: 0,
        };
        Ok(Edf {
            order: Order::new(slots)?,
            heap,
            aside: take(slots).ok_or(NONE)?,
            claim: 0,
            within_ns: config.int("default_ms", 10_000, 0..=86_400_000)? * 1_000_000,
            margin: config.int("margin_percent", 10, 0..=1000)? as u64,
            background: config.int("background_percent", 10, 1..=100)?,
        })
    }

    fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error> {
        let within_ns = self.within_ns;
        self.order.update(step, |r| place(within_ns, r))?;
        let (late, end) = self.relegate(step);
        self.list(step, out, late, end);
        for &slot in &self.order.slots()[late..end] {
            self.aside[slot as usize] = false;
        }
        Ok(())
    }
}

policy!(Edf);

#[cfg(test)]
mod unit;
