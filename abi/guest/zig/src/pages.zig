//! Whether a chunk will get its pages.

const abi = @import("abi.zig");
const Header = abi.Header;
const Record = abi.Record;

/// Tells by the host's own rule whether a chunk will get its pages: one has to stay free for each
/// request that holds some, and an admission leaves the reserve free too unless nobody holds any.
/// Decodes take theirs first: who wants to be exact takes the pages_needed of each decoding record off
/// `free` before the first question.
pub const Pages = struct {
    free: u32,
    running: u32,
    reserve: u32,
    size: u32,

    pub fn of(h: *const Header) Pages {
        return .{
            .free = h.free_pages,
            .running = h.n_running,
            .reserve = h.reserve_pages,
            .size = @max(h.page_tokens, 1),
        };
    }

    /// How many new pages the next tokens of a prompt take.
    pub fn needed(self: *const Pages, r: *const Record, tokens: u32) u32 {
        const whole = @as(u64, r.prompt_tokens) + r.generated;
        const computed = whole -| r.remaining_prefill;
        const ends = (computed + tokens + self.size - 1) / self.size;
        // A waiting request shares full pages only: of a page begun by another it needs a copy.
        const has = (if (waits(r)) computed else computed + self.size - 1) / self.size;
        return @intCast(@min(ends - has, r.pages_needed));
    }

    /// Says whether the chunk fits, and if so takes its pages off.
    pub fn take(self: *Pages, r: *const Record, tokens: u32) bool {
        const need = self.needed(r, tokens);
        var spare: u64 = self.running;
        if (waits(r)) spare = if (self.running == 0) 1 else @as(u64, self.reserve) + 1;
        if ((need > 0 or waits(r)) and need + spare > self.free) return false;
        self.free -= need;
        if (waits(r)) {
            self.running += 1;
            self.reserve += 1;
        }
        return true;
    }
};

fn waits(r: *const Record) bool {
    return r.state & abi.state_running == 0;
}
