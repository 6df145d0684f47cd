//! An order of slots that follows the changed list.

use crate::abi;
use crate::memory::take;
use crate::{Error, Record, Step};

/// Orders requests: by first, then second, then id, all ascending. Ids are unique, so no two are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub first: i64,
    pub second: i64,
    pub id: u64,
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
}

/// Up to this many moves are done one by one; more are sorted and merged.
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
        if n > FEW {
            self.many(n, step, key_of);
            return Ok(());
        }
        for i in 0..n {
            let slot = self.moved[i];
            self.one(slot, key_of(step.record(slot)));
        }
        Ok(())
    }

    fn place(&self, key: &Key) -> usize {
        let keys = &self.keys;
        self.slots[..self.len].partition_point(|&s| keys[s as usize] < *key)
    }

    /// Gives one slot its new place.
    fn one(&mut self, slot: u32, key: Option<Key>) {
        let s = slot as usize;
        if self.inside[s] {
            let at = self.place(&self.keys[s]);
            self.slots.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
        self.inside[s] = key.is_some();
        if let Some(key) = key {
            let at = self.place(&key);
            self.keys[s] = key;
            self.slots.copy_within(at..self.len, at + 1);
            self.slots[at] = slot;
            self.len += 1;
        }
    }

    /// Drops all n that moved, sorts those that stay in, merges them from the back.
    fn many(&mut self, n: usize, step: &Step, key_of: impl Fn(&Record) -> Option<Key>) {
        let Order { slots, len, keys, inside, moved } = self;
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
        moved[..added].sort_unstable_by(|&a, &b| keys[a as usize].cmp(&keys[b as usize]));
        *len = kept + added;
        for end in (0..*len).rev() {
            let key = |slot: u32| keys[slot as usize];
            if added == 0 {
                break;
            }
            if kept > 0 && key(moved[added - 1]) < key(slots[kept - 1]) {
                kept -= 1;
                slots[end] = slots[kept];
            } else {
                added -= 1;
                slots[end] = moved[added];
            }
        }
    }
}
