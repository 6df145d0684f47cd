//! What decide reads and what it writes.

use core::marker::PhantomData;
use core::mem::size_of;

use crate::abi;
use crate::{Decision, Header, Peer, Record, Tenant};

impl Record {
    /// The slot holds a request.
    pub fn live(&self) -> bool {
        self.state & abi::STATE_LIVE != 0
    }

    /// There is prompt to compute, so that it can be run with a chunk: waiting and prefilling.
    pub fn prefills(&self) -> bool {
        self.state & (abi::STATE_LIVE | abi::STATE_DECODING) == abi::STATE_LIVE
            && self.remaining_prefill > 0
    }
}

/// One step, as the host shows it.
pub struct Step<'a> {
    pub header: &'a Header,
    /// Slots added, changed or freed since the last step, ascending; all live ones on a resync.
    pub changed: &'a [u32],
    /// By index; empty where the host shows none (capability tenants).
    pub tenants: &'a [Tenant],
    /// The first has index 1; empty where the host shows none (capability peers).
    pub peers: &'a [Peer],
    records: usize,
    stride: usize,
    slots: usize,
    life: PhantomData<&'a Record>,
}

impl<'a> Step<'a> {
    /// A step from plain slices, for tests. The header's n_slots and n_changed are not read.
    pub fn of(header: &'a Header, records: &'a [Record], changed: &'a [u32]) -> Step<'a> {
        Step {
            header,
            changed,
            tenants: &[],
            peers: &[],
            records: records.as_ptr() as usize,
            stride: size_of::<Record>(),
            slots: records.len(),
            life: PhantomData,
        }
    }

    /// The step in the guest's memory.
    ///
    /// # Safety
    /// What the header points to must be as SPEC.md says.
    pub(crate) unsafe fn at(header: &'a Header) -> Step<'a> {
        Step {
            header,
            changed: slice(header.changed_ptr, header.n_changed),
            tenants: slice(header.tenants_ptr, header.n_tenants),
            peers: slice(header.peers_ptr, header.n_peers),
            records: header.records_ptr as usize,
            stride: header.record_stride as usize,
            slots: header.n_slots as usize,
            life: PhantomData,
        }
    }

    /// Slots in the table, free ones included.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The record of a slot; panics beyond the table.
    pub fn record(&self, slot: u32) -> &'a Record {
        assert!((slot as usize) < self.slots);
        unsafe { &*((self.records + slot as usize * self.stride) as *const Record) }
    }

    /// The tenant that a record names.
    pub fn tenant(&self, index: u32) -> Option<&'a Tenant> {
        self.tenants.get(index as usize)
    }

    /// The destination that a record names; peer 0 is none.
    pub fn peer(&self, index: u16) -> Option<&'a Peer> {
        self.peers.get(usize::from(index).checked_sub(1)?)
    }
}

/// A table of the host's.
unsafe fn slice<'a, T>(at: u32, len: u32) -> &'a [T] {
    match len {
        0 => &[],
        n => core::slice::from_raw_parts(at as usize as *const T, n as usize),
    }
}

/// The answer, most important decision first.
pub struct Out<'a> {
    items: &'a mut [Decision],
    len: usize,
}

impl<'a> Out<'a> {
    /// An empty answer of at most items.len() decisions, for tests.
    pub fn new(items: &'a mut [Decision]) -> Out<'a> {
        Out { items, len: 0 }
    }

    pub(crate) unsafe fn at(at: usize, cap: usize) -> Out<'a> {
        match cap {
            0 => Out::new(&mut []),
            _ => Out::new(core::slice::from_raw_parts_mut(at as *mut Decision, cap)),
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What was added so far.
    pub fn decisions(&self) -> &[Decision] {
        &self.items[..self.len]
    }

    /// Adds a decision; false when the list is full.
    pub fn add(&mut self, decision: Decision) -> bool {
        match self.items.get_mut(self.len) {
            None => false,
            Some(place) => {
                *place = decision;
                self.len += 1;
                true
            }
        }
    }

    /// Computes that many tokens of a request's prompt, or [`abi::TOKENS_AUTO`].
    pub fn run(&mut self, slot: u32, record: &Record, tokens: u32) -> bool {
        self.add(Decision { slot, tokens, id_low: record.id as u32, ..Decision::default() })
    }

    /// Leaves a request out of this step, a decoding one too.
    pub fn skip(&mut self, slot: u32, record: &Record) -> bool {
        let action = abi::ACTION_SKIP;
        self.add(Decision { slot, action, id_low: record.id as u32, ..Decision::default() })
    }

    /// Takes the pages of a running request that is not pinned; it is computed again later. Only with
    /// [`abi::CAP_PREEMPT`], and before the runs that it makes room for.
    pub fn preempt(&mut self, slot: u32, record: &Record, reason: u16) -> bool {
        let action = abi::ACTION_PREEMPT_RECOMPUTE;
        let id_low = record.id as u32;
        self.add(Decision { slot, action, id_low, reason, ..Decision::default() })
    }
}
