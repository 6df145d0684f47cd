//! The first k of any number.

use crate::abi;
use crate::memory::take;
use crate::order::Key;
use crate::Error;

/// Keeps the k first of any number of slots offered: for keys that depend on the time, or on each
/// other. Offer all, then read [`Top::sorted`].
pub struct Top {
    heap: &'static mut [(Key, u32)], // The last in order at 0.
    len: usize,
}

impl Top {
    /// Takes memory for k entries, in [`crate::Policy::new`].
    pub fn new(k: usize) -> Result<Top, Error> {
        let heap = take(k).ok_or(Error::new(abi::CODE_OUT_OF_MEMORY, "no memory for the first k"))?;
        Ok(Top { heap, len: 0 })
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn offer(&mut self, key: Key, slot: u32) {
        if self.len == self.heap.len() {
            if self.len > 0 && key < self.heap[0].0 {
                self.sink(self.len, (key, slot));
            }
            return;
        }
        let mut at = self.len;
        self.len += 1;
        while at > 0 && self.heap[(at - 1) / 2].0 < key {
            self.heap[at] = self.heap[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        self.heap[at] = (key, slot);
    }

    /// Puts an entry in the first one's place and lets it sink in a heap of n.
    fn sink(&mut self, n: usize, entry: (Key, u32)) {
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= n {
                break;
            }
            if child + 1 < n && self.heap[child].0 < self.heap[child + 1].0 {
                child += 1;
            }
            if entry.0 >= self.heap[child].0 {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = entry;
    }

    /// The entries in order; after it only clear and offers to a cleared one make sense.
    pub fn sorted(&mut self) -> &[(Key, u32)] {
        for n in (1..self.len).rev() {
            let last = self.heap[n];
            self.heap[n] = self.heap[0];
            self.sink(n, last);
        }
        &self.heap[..self.len]
    }
}
