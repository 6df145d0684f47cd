//! Sharing a step's prefill tokens among prompts.

const Header = @import("abi.zig").Header;

/// How many prefill tokens are left in this step, and how long a chunk may be.
pub const Chunks = struct {
    left: u32,
    max: u32,
    multiple: u32,

    pub fn of(h: *const Header) Chunks {
        return .{
            .left = h.token_budget -| h.decode_tokens,
            .max = h.chunk_max,
            .multiple = @max(h.chunk_align, 1),
        };
    }

    /// Takes the longest chunk for a prompt with this much remaining; null: nothing fits.
    pub fn take(self: *Chunks, remaining: u32) ?u32 {
        var n = @min(remaining, self.max, self.left);
        if (n < remaining) n -= n % self.multiple;
        self.left -= n;
        return if (n == 0) null else n;
    }
};

/// The longest chunk, at most chunk_max, with which the step should end within target_ns by the
/// engine's own cost figures: fixed + tokens * cost_token + tokens * (context + tokens / 2) * cost_ctx,
/// the running decodes included. context is what the prompt has already: cached, and computed. Without
/// figures it is chunk_max.
pub fn chunkWithin(h: *const Header, context: u32, target_ns: i64) u32 {
    if (h.cost_token_ns == 0) return h.chunk_max;
    const token: f64 = @floatFromInt(h.cost_token_ns);
    const ctx: f64 = @as(f64, @floatFromInt(h.cost_ctx_ps)) * 1e-3;
    const decodes: f64 = @floatFromInt(h.decode_tokens);
    const left = @as(f64, @floatFromInt(target_ns)) - @as(f64, @floatFromInt(h.cost_fixed_us)) * 1e3 - decodes * token;
    var low: u32 = 0; // fits
    var high = h.chunk_max;
    while (low < high) {
        const n = high - (high - low) / 2;
        const t: f64 = @floatFromInt(n);
        const cost = t * token + t * (@as(f64, @floatFromInt(context)) + 0.5 * t) * ctx;
        if (cost <= left) low = n else high = n - 1;
    }
    return low;
}
