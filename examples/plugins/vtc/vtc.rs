//! vtc: every tenant gets its share. The tenant that had the least service by its weight is next; within
//! a tenant the oldest request.
//!
//! The Virtual Token Counter of Sheng et al. (OSDI 2024): a counter for each tenant rises with what is
//! computed for it, a generated token counting `output_weight` times as much as a prompt's; a tenant that
//! comes back after a rest is lifted to the least counter of those that are there, so that rest is
//! not saved up. Prompts are charged when they are chosen, as in the paper; the next records show what
//! came of it, and what the host did not compute is given back.
#![no_std]

use pol::abi::{CAP_CHUNK_LENGTHS, CAP_LOG, CAP_STATE, CAP_TENANTS, STATE_RUNNING};
use pol::abi::{CODE_OUT_OF_MEMORY, CODE_STATE_VERSION, FLAG_RESYNC};
use pol::{policy_with_state, take, Chunks, Config, Counters, Error, Key, Order, Out, Policy};
use pol::{Record, State, Step};

/// Tenants that are told apart: as many as the host does (SPEC.md, 12).
const TENANTS: usize = 1025;

const NO_MEMORY: Error = Error::new(CODE_OUT_OF_MEMORY, "no memory for the tenants' accounts");

fn tenant_of(r: &Record) -> u32 {
    r.tenant.min(TENANTS as u32 - 1)
}

/// By tenant, those begun first, then by arrival: each tenant's requests are one part of the order.
fn place(r: &Record) -> Option<Key> {
    let begun = r.state & STATE_RUNNING != 0;
    let second = if begun { i64::MIN } else { r.arrival_ns };
    if r.prefills() {
        Some(Key { first: i64::from(tenant_of(r)), second, id: r.id })
    } else {
        None
    }
}

fn weight(step: &Step, tenant: u32) -> u32 {
    step.tenant(tenant).map_or(1000, |t| t.weight_milli)
}

/// The tenants' counters, and what was seen last of each request, by slot.
struct Accounts {
    counters: Counters,
    output_weight: u32,
    id: &'static mut [u64],
    tenant: &'static mut [u32],
    service: &'static mut [u64],
    generated: &'static mut [u32],
    /// Prompt tokens that were charged when they were chosen, until the next step shows what came of it.
    promised: &'static mut [u32],
    chosen: &'static mut [u32],
    n_chosen: usize,
    /// Requests of each tenant, in whatever state.
    present: &'static mut [u32],
}

impl Accounts {
    fn new(slots: usize, output_weight: u32) -> Result<Accounts, Error> {
        Ok(Accounts {
            counters: Counters::new(TENANTS)?,
            output_weight,
            id: take(slots).ok_or(NO_MEMORY)?,
            tenant: take(slots).ok_or(NO_MEMORY)?,
            service: take(slots).ok_or(NO_MEMORY)?,
            generated: take(slots).ok_or(NO_MEMORY)?,
            promised: take(slots).ok_or(NO_MEMORY)?,
            chosen: take(slots).ok_or(NO_MEMORY)?,
            n_chosen: 0,
            present: take(TENANTS).ok_or(NO_MEMORY)?,
        })
    }

    /// Charges a chunk that was chosen.
    fn promise(&mut self, step: &Step, slot: u32, tokens: u32) {
        let tenant = self.tenant[slot as usize];
        self.counters.charge(tenant, tokens, weight(step, tenant));
        self.promised[slot as usize] = tokens;
        self.chosen[self.n_chosen] = slot;
        self.n_chosen += 1;
    }

    /// Charges what the record shows beyond what was promised. The first token comes with the prompt's
    /// last chunk: it is an output, and no token more was computed for it.
    #[inline(never)] // Fuel is charged for what stands in a loop, whether it runs or not.
    fn settle(&mut self, step: &Step, slot: usize, r: &Record) {
        let tenant = self.tenant[slot];
        let made = r.generated.saturating_sub(self.generated[slot]);
        let with_prompt = u32::from(self.generated[slot] == 0 && made > 0);
        let computed = r.service_tokens.saturating_sub(self.service[slot]).min(1 << 31) as u32;
        let prompt = computed.saturating_sub(made - with_prompt);
        let unpaid = prompt.saturating_sub(self.promised[slot]);
        self.promised[slot] = self.promised[slot].saturating_sub(prompt);
        self.service[slot] = r.service_tokens;
        self.generated[slot] = r.generated;
        let weight = weight(step, tenant);
        self.counters.charge(tenant, unpaid, weight);
        self.counters.charge(tenant, made.min(1 << 20) * self.output_weight, weight);
    }

    #[inline(never)]
    fn enter(&mut self, slot: usize, r: &Record) {
        let tenant = tenant_of(r);
        self.id[slot] = r.id;
        self.tenant[slot] = tenant;
        self.service[slot] = r.service_tokens;
        self.generated[slot] = r.generated;
        self.present[tenant as usize] += 1;
        self.counters.enter(tenant);
    }

    /// A request has left its slot: the chunk it was promised, or its last token, made it leave.
    #[inline(never)]
    fn leave(&mut self, step: &Step, slot: usize) {
        let tenant = self.tenant[slot];
        if self.promised[slot] > 0 || self.generated[slot] > 0 {
            self.counters.charge(tenant, self.output_weight, weight(step, tenant));
        }
        self.promised[slot] = 0;
        self.id[slot] = 0;
        self.present[tenant as usize] -= 1;
        if self.present[tenant as usize] == 0 {
            self.counters.leave(tenant);
        }
    }

    fn change(&mut self, step: &Step, slot: usize, r: &Record) {
        if self.id[slot] != 0 && r.live() && self.id[slot] == r.id {
            return self.settle(step, slot, r);
        }
        if self.id[slot] != 0 {
            self.leave(step, slot);
        }
        if r.live() && r.id != 0 {
            self.enter(slot, r);
        }
    }

    /// Follows the changed list, and gives back what was promised and not computed.
    fn follow(&mut self, step: &Step) {
        if step.header.flags & FLAG_RESYNC != 0 {
            for slot in 0..self.id.len() {
                let gone = slot >= step.slots() || !step.record(slot as u32).live();
                if gone && self.id[slot] != 0 {
                    self.leave(step, slot);
                }
            }
        }
        for &slot in step.changed {
            self.change(step, slot as usize, step.record(slot));
        }
        for i in 0..self.n_chosen {
            let slot = self.chosen[i] as usize;
            let tenant = self.tenant[slot];
            self.counters.refund(tenant, self.promised[slot], weight(step, tenant));
            self.promised[slot] = 0;
        }
        self.n_chosen = 0;
    }
}

/// The tenants with something to run in this step.
struct Turn {
    /// A heap, the tenant with the least counter first.
    heap: &'static mut [u32],
    len: usize,
    /// By tenant: where in the order its next request is, where its part ends, and how many of its
    /// requests hold pages.
    next: &'static mut [u32],
    end: &'static mut [u32],
    running: &'static mut [u32],
}

impl Turn {
    fn new() -> Result<Turn, Error> {
        Ok(Turn {
            heap: take(TENANTS).ok_or(NO_MEMORY)?,
            len: 0,
            next: take(TENANTS).ok_or(NO_MEMORY)?,
            end: take(TENANTS).ok_or(NO_MEMORY)?,
            running: take(TENANTS).ok_or(NO_MEMORY)?,
        })
    }

    /// Finds each tenant's part of the order.
    fn gather(&mut self, step: &Step, order: &Order, counters: &Counters) {
        let mut at = 0;
        self.len = 0;
        while at < order.slots().len() {
            let tenant = tenant_of(step.record(order.slots()[at]));
            let first = i64::from(tenant) + 1;
            let end = order.find(&Key { first, second: i64::MIN, id: 0 });
            self.next[tenant as usize] = at as u32;
            self.end[tenant as usize] = end as u32;
            self.running[tenant as usize] = step.tenant(tenant).map_or(0, |t| t.running);
            self.heap[self.len] = tenant;
            self.len += 1;
            at = end;
        }
        self.heapify(counters);
    }

    /// Lets the heap's entry at a place sink to where it belongs.
    fn sink(&mut self, mut at: usize, counters: &Counters) {
        let key = |tenant: u32| (counters.of(tenant), tenant);
        loop {
            let mut child = 2 * at + 1;
            if child >= self.len {
                return;
            }
            if child + 1 < self.len && key(self.heap[child + 1]) < key(self.heap[child]) {
                child += 1;
            }
            if key(self.heap[child]) > key(self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }

    /// Leaves only the tenants whose next request is begun: nobody else may start in this step.
    fn prune(&mut self, step: &Step, order: &Order, counters: &Counters) {
        let mut kept = 0;
        for i in 0..self.len {
            let tenant = self.heap[i];
            let slot = order.slots()[self.next[tenant as usize] as usize];
            if step.record(slot).state & STATE_RUNNING != 0 {
                self.heap[kept] = tenant;
                kept += 1;
            }
        }
        self.len = kept;
        self.heapify(counters);
    }

    fn heapify(&mut self, counters: &Counters) {
        for at in (0..self.len / 2).rev() {
            self.sink(at, counters);
        }
    }

    /// Takes the first tenant out for this step.
    fn drop_first(&mut self, counters: &Counters) {
        self.len -= 1;
        self.heap[0] = self.heap[self.len];
        self.sink(0, counters);
    }
}

struct Vtc {
    order: Order,
    accounts: Accounts,
    turn: Turn,
}

/// May a waiting request of the tenant start? The host refuses it otherwise, and the tenant's claim on
/// this step would be lost.
fn may_start(step: &Step, tenant: u32, running: u32) -> bool {
    let most = step.tenant(tenant).map_or(0, |t| t.max_seqs);
    most == 0 || running < most
}

impl Policy for Vtc {
    const NAME: &'static str = "vtc";
    const VERSION: &'static str = "1.0.0";
    const STATE_VERSION: u16 = 1;
    const CAPS_OPTIONAL: u64 = CAP_CHUNK_LENGTHS | CAP_LOG | CAP_STATE | CAP_TENANTS;

    fn new(config: &mut Config, slots: usize) -> Result<Self, Error> {
        let output_weight = config.int("output_weight", 2, 0..=100)? as u32;
        let accounts = Accounts::new(slots, output_weight)?;
        Ok(Vtc { order: Order::new(slots)?, accounts, turn: Turn::new()? })
    }

    fn decide(&mut self, step: &Step, out: &mut Out) -> Result<(), Error> {
        let Vtc { order, accounts, turn } = self;
        order.update(step, place)?;
        accounts.follow(step);
        turn.gather(step, order, &accounts.counters);
        let mut chunks = Chunks::of(step.header);
        let mut starts = step.header.max_admit;
        while turn.len > 0 {
            let tenant = turn.heap[0];
            let t = tenant as usize;
            let slot = order.slots()[turn.next[t] as usize];
            let r = step.record(slot);
            if r.state & STATE_RUNNING == 0 {
                if starts == 0 {
                    turn.prune(step, order, &accounts.counters);
                    continue;
                }
                if !may_start(step, tenant, turn.running[t]) {
                    turn.drop_first(&accounts.counters);
                    continue;
                }
                turn.running[t] += 1;
                starts -= 1;
            }
            match chunks.take(r.remaining_prefill) {
                Some(tokens) if out.run(slot, r, tokens) => accounts.promise(step, slot, tokens),
                _ => break,
            }
            turn.next[t] += 1;
            if turn.next[t] == turn.end[t] {
                turn.drop_first(&accounts.counters);
            } else {
                turn.sink(0, &accounts.counters);
            }
        }
        Ok(())
    }
}

/// The state: for each tenant that is there or had any service its number, with the top bit set if it is
/// there, and its counter, 4 and 8 bytes.
const ENTRY: usize = 12;
const HERE: u32 = 1 << 31;

impl State for Vtc {
    fn save(&self, to: &mut [u8]) -> usize {
        let counters = &self.accounts.counters;
        let mut len = 0;
        for tenant in (0..TENANTS as u32).filter(|&t| counters.of(t) != 0 || counters.here(t)) {
            if let Some(entry) = to.get_mut(len..len + ENTRY) {
                let number = tenant | if counters.here(tenant) { HERE } else { 0 };
                entry[..4].copy_from_slice(&number.to_le_bytes());
                entry[4..].copy_from_slice(&counters.of(tenant).to_le_bytes());
            }
            len += ENTRY;
        }
        len
    }

    fn load(&mut self, from: &[u8], version: u16) -> Result<(), Error> {
        if version != Vtc::STATE_VERSION || from.len() % ENTRY != 0 {
            return Err(Error::new(CODE_STATE_VERSION, "not the counters of vtc"));
        }
        for entry in from.chunks_exact(ENTRY) {
            let (mut tenant, mut counter) = ([0; 4], [0; 8]);
            tenant.copy_from_slice(&entry[..4]);
            counter.copy_from_slice(&entry[4..]);
            let number = u32::from_le_bytes(tenant);
            let tenant = (number & !HERE).min(TENANTS as u32 - 1);
            let counter = i64::from_le_bytes(counter);
            self.accounts.counters.restore(tenant, counter, number & HERE != 0);
        }
        Ok(())
    }
}

policy_with_state!(Vtc);

#[cfg(test)]
mod unit;
