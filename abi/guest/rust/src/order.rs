//! An order of slots that follows the changed list.

use core::cmp::Ordering;

use crate::abi;
use crate::memory::take;
use crate::{Error, Record, Step};

/// Orders requests: by first, then second, then id, all ascending. Ids are unique, so no two are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub first: i64,
    pub second: i64,
    pub id: u64,
}

impl Key {
    /// Written without branches: fuel is charged for both sides of one.
    pub fn before(&self, other: &Key) -> bool {
        (self.first < other.first)
            | ((self.first == other.first)
                & ((self.second < other.second)
                    | ((self.second == other.second) & (self.id < other.id))))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        (self.first, self.second, self.id).cmp(&(other.first, other.second, other.id))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Keeps slots in order from step to step: a step costs what changed, not what waits.
///
/// Keys must depend on the record alone, not on the time. A request that ages at the same rate as all
/// others keeps its place, so put the arrival into the key.
pub struct Order {
    slots: &'static mut [u32], // In order: slots[..len].
    len: usize,
    keys: &'static mut [Key],   // By slot, of those that are in.
    inside: &'static mut [bool], // By slot.
    moved: &'static mut [u32],  // Slots that leave, enter or change place.
    scratch: &'static mut [u32],
}

/// Up to this many moves, and one more for each 128 slots in the order, are done one by one: each costs a
/// search and half a copy of the list. More are sorted and merged in a walk along all of it.
const FEW: usize = 16;

impl Order {
    /// Takes memory for a table of this many slots, in [`crate::Policy::new`].
    pub fn new(slots: usize) -> Result<Order, Error> {
        const NONE: Error =
            Error::new(abi::CODE_OUT_OF_MEMORY, "no memory for the order of all slots");
        Ok(Order {
            slots: take(slots).ok_or(NONE)?,
            len: 0,
            keys: take(slots).ok_or(NONE)?,
            inside: take(slots).ok_or(NONE)?,
            moved: take(slots).ok_or(NONE)?,
            scratch: take(slots).ok_or(NONE)?,
        })
    }

    /// The slots, in order.
    pub fn slots(&self) -> &[u32] {
        &self.slots[..self.len]
    }

    /// Follows the changed list; once a step, first thing. key_of gives a record's place, or None when
    /// it does not belong into the order.
    pub fn update(
        &mut self,
        step: &Step,
        key_of: impl Fn(&Record) -> Option<Key>,
    ) -> Result<(), Error> {
        if step.header.flags & abi::FLAG_RESYNC != 0 {
            self.inside.fill(false);
            self.len = 0;
        }
        let mut n = 0;
        for &slot in step.changed {
            let s = slot as usize;
            if s >= self.inside.len() || n >= self.moved.len() {
                const BEYOND: &str = "the changed list names a slot beyond the table";
                return Err(Error::new(abi::CODE_BAD_ARGUMENT, BEYOND));
            }
            let was = if self.inside[s] { Some(self.keys[s]) } else { None };
            if key_of(step.record(slot)) != was {
                self.moved[n] = slot;
                n += 1;
            }
        }
        if n > FEW + self.len / 128 {
            self.many(n, step, key_of);
            return Ok(());
        }
        for i in 0..n {
            let slot = self.moved[i];
            self.one(slot, key_of(step.record(slot)));
        }
        Ok(())
    }

    /// The first place in [`Order::slots`] whose key is not before this one: where a part begins.
    pub fn find(&self, key: &Key) -> usize {
        let keys = &self.keys;
        self.slots[..self.len].partition_point(|&s| keys[s as usize].before(key))
    }

    /// Gives one slot its new place.
    fn one(&mut self, slot: u32, key: Option<Key>) {
        let s = slot as usize;
        if self.inside[s] {
            let at = self.find(&self.keys[s]);
            self.slots.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
        self.inside[s] = key.is_some();
        if let Some(key) = key {
            let at = self.find(&key);
            self.keys[s] = key;
            self.slots.copy_within(at..self.len, at + 1);
            self.slots[at] = slot;
            self.len += 1;
        }
    }

    /// Drops all n that moved, sorts those that stay in, merges them from the back.
    fn many(&mut self, n: usize, step: &Step, key_of: impl Fn(&Record) -> Option<Key>) {
        let Order { slots, len, keys, inside, moved, scratch } = self;
        for &slot in &moved[..n] {
            inside[slot as usize] = false;
        }
        let mut kept = 0;
        for i in 0..*len {
            if inside[slots[i] as usize] {
                slots[kept] = slots[i];
                kept += 1;
            }
        }
        let mut added = 0;
        for i in 0..n {
            let slot = moved[i];
            if let Some(key) = key_of(step.record(slot)) {
                keys[slot as usize] = key;
                inside[slot as usize] = true;
                moved[added] = slot;
                added += 1;
            }
        }
        sort(keys, &mut moved[..added], &mut scratch[..added]);
        *len = kept + added;
        while kept > 0 && added > 0 {
            let (x, y) = (slots[kept - 1], moved[added - 1]);
            let old = key(keys, y).before(key(keys, x));
            slots[kept + added - 1] = if old { x } else { y };
            kept -= usize::from(old);
            added -= usize::from(!old);
        }
        slots[..added].copy_from_slice(&moved[..added]);
    }
}

/// The key of a slot that is in.
fn key(keys: &[Key], slot: u32) -> &Key {
    debug_assert!((slot as usize) < keys.len());
    // update lets no slot in that is not below keys.len(). The check would be half of a comparison.
    unsafe { keys.get_unchecked(slot as usize) }
}

/// Sorts slots by their keys: runs of 8 by insertion, then merged. scratch is as long as slots.
fn sort(keys: &[Key], slots: &mut [u32], scratch: &mut [u32]) {
    let n = slots.len();
    for run in slots.chunks_mut(8) {
        for i in 1..run.len() {
            let slot = run[i];
            let mut j = i;
            while j > 0 && key(keys, slot).before(key(keys, run[j - 1])) {
                run[j] = run[j - 1];
                j -= 1;
            }
            run[j] = slot;
        }
    }
    let (mut from, mut to) = (slots, scratch);
    let (mut width, mut swapped) = (8, false);
    while width < n {
        for (from, to) in from.chunks(2 * width).zip(to.chunks_mut(2 * width)) {
            let (a, b) = from.split_at(width.min(from.len()));
            merge(keys, a, b, to);
        }
        core::mem::swap(&mut from, &mut to);
        swapped = !swapped;
        width *= 2;
    }
    if swapped {
        to.copy_from_slice(from);
    }
}

/// Merges a and b into to, which is as long as both.
fn merge(keys: &[Key], a: &[u32], b: &[u32], to: &mut [u32]) {
    let (mut i, mut j) = (0, 0);
    let apart = match (a.last(), b.first()) {
        (Some(&x), Some(&y)) => key(keys, y).before(key(keys, x)),
        _ => false,
    };
    // Otherwise they are in order as they stand.
    while apart && i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        let second = key(keys, y).before(key(keys, x));
        to[i + j] = if second { y } else { x };
        i += usize::from(!second);
        j += usize::from(second);
    }
    let rest = a.len() - i;
    to[i + j..i + j + rest].copy_from_slice(&a[i..]);
    to[i + j + rest..].copy_from_slice(&b[j..]);
}
