//! Sharing a step's prefill tokens among prompts.

use crate::Header;

/// How many prefill tokens are left in this step, and how long a chunk may be.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    left: u32,
    max: u32,
    align: u32,
}

impl Chunks {
    pub fn of(header: &Header) -> Chunks {
        Chunks {
            left: header.token_budget.saturating_sub(header.decode_tokens),
            max: header.chunk_max,
            align: header.chunk_align.max(1),
        }
    }

    /// Tokens left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Takes the longest chunk for a prompt with this much remaining; None: nothing fits.
    pub fn take(&mut self, remaining: u32) -> Option<u32> {
        let mut n = remaining.min(self.max).min(self.left);
        if n < remaining && self.align > 1 {
            n -= n % self.align;
        }
        self.left -= n;
        if n == 0 {
            None
        } else {
            Some(n)
        }
    }
}
