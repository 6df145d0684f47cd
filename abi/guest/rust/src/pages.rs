//! Whether a chunk will get its pages.

use crate::abi;
use crate::{Header, Record};

/// Tells by the host's own rule whether a chunk will get its pages: one has to stay free for each
/// request that holds some, and an admission leaves the reserve free too unless nobody holds any.
/// Decodes take theirs first: who wants to be exact takes the `pages_needed` of each decoding record
/// off `free` before the first question.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    pub free: u32,
    running: u32,
    reserve: u32,
    size: u32,
}

impl Pages {
    pub fn of(h: &Header) -> Pages {
        Pages {
            free: h.free_pages,
            running: h.n_running,
            reserve: h.reserve_pages,
            size: h.page_tokens.max(1),
        }
    }

    /// How many new pages the next tokens of a prompt take.
    pub fn needed(&self, r: &Record, tokens: u32) -> u32 {
        let whole = u64::from(r.prompt_tokens) + u64::from(r.generated);
        let computed = whole.saturating_sub(u64::from(r.remaining_prefill));
        let size = u64::from(self.size);
        let pages = |tokens: u64| (tokens + size - 1) / size;
        // A waiting request shares full pages only: of a page begun by another it needs a copy.
        let has = if waits(r) { computed / size } else { pages(computed) };
        let need = pages(computed + u64::from(tokens)) - has;
        need.min(u64::from(r.pages_needed)) as u32
    }

    /// Says whether the chunk fits, and if so takes its pages off.
    pub fn take(&mut self, r: &Record, tokens: u32) -> bool {
        let (need, waits) = (self.needed(r, tokens), waits(r));
        let spare = match (waits, self.running) {
            (false, running) => running,
            (true, 0) => 1,
            (true, _) => self.reserve.saturating_add(1),
        };
        if (need > 0 || waits) && u64::from(need) + u64::from(spare) > u64::from(self.free) {
            return false;
        }
        self.free -= need;
        self.running += u32::from(waits);
        self.reserve += u32::from(waits);
        true
    }
}

fn waits(r: &Record) -> bool {
    r.state & abi::STATE_RUNNING == 0
}
