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
        self.take_within(remaining, self.max)
    }

    /// Takes the longest chunk of at most so many tokens.
    pub fn take_within(&mut self, remaining: u32, most: u32) -> Option<u32> {
        let mut n = remaining.min(self.max).min(self.left).min(most);
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

/// The longest chunk, at most chunk_max, with which the step should end within target_ns by the
/// engine's own cost figures: fixed + tokens * cost_token + tokens * (context + tokens / 2) * cost_ctx,
/// the running decodes included. context is what the prompt has already: cached, and computed.
/// Without figures it is chunk_max.
pub fn chunk_within(h: &Header, context: u32, target_ns: i64) -> u32 {
    let token = f64::from(h.cost_token_ns);
    let left =
        target_ns as f64 - f64::from(h.cost_fixed_us) * 1e3 - f64::from(h.decode_tokens) * token;
    let (mut low, mut high) = (0, h.chunk_max); // low fits
    if h.cost_token_ns == 0 {
        return high;
    }
    while low < high {
        let n = high - (high - low) / 2;
        let t = f64::from(n);
        let cost =
            t * token + t * (f64::from(context) + 0.5 * t) * f64::from(h.cost_ctx_ps) * 1e-3;
        if cost <= left {
            low = n;
        } else {
            high = n - 1;
        }
    }
    low
}
