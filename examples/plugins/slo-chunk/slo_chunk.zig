//! slo-chunk: prompts get what the running streams can spare. As long as a stream is running, a step
//! computes only as many prompt tokens as let it end in time for the next token of that stream.
//!
//! How long a step takes follows from the engine's own cost figures: fixed + tokens * cost_token + tokens *
//! context * cost_ctx. What they get wrong is learned: the last step's real duration, held against its
//! forecast, moves a factor on all forecasts. While the engine has no figures yet, chunks grow by steps
//! and are halved when a step was too long, as TCP does. Deadline-driven chunks as in Niyama (arXiv
//! 2503.22562) and Medha (arXiv 2409.17264).

const pol = @import("pol");

pub const panic = pol.panic;

const reason_limited = 1;

/// A factor on the forecast, in 1024ths.
const Pace = struct {
    factor: i64 = 1024,
    forecast_ns: i64 = 0,

    const least = 256;
    const most = 16 * 1024;

    /// Learns from the last step: at once when it was slower than thought, slowly when it was faster.
    fn learn(self: *Pace, last_step_us: u32) void {
        if (self.forecast_ns <= 0 or last_step_us == 0) return;
        const real = @divTrunc(@as(i64, last_step_us) * 1000 * 1024, self.forecast_ns);
        const seen = @max(least, @min(most, real));
        const weight: i64 = if (seen > self.factor) 2 else 16;
        self.factor += @divTrunc(seen - self.factor, weight);
    }

    /// How much forecast fits into this much real time.
    fn forecast(self: *const Pace, real_ns: i64) i64 {
        return @divTrunc(@max(real_ns, 0) *| 1024, self.factor);
    }
};

/// The forecast of a chunk, nanoseconds, without the step's fixed cost.
fn cost(h: *const pol.Header, context: u32, tokens: u32) i64 {
    const n: i64 = tokens;
    const attention = @divTrunc(n *| (@as(i64, context) + @divTrunc(n, 2)) *| h.cost_ctx_ps, 1000);
    return n *| h.cost_token_ns +| attention;
}

const SloChunk = struct {
    pub const name = "slo-chunk";
    pub const version = "1.0.0";

    order: pol.Order,
    pace: Pace = .{},
    /// Prompt tokens a step may compute while the engine has no cost figures.
    window: u32,
    target_ns: i64,
    least: u32,
    safety: i64,

    pub fn init(config: *pol.Config, slots: u32) pol.Error!SloChunk {
        const target_ms = config.int("target_ms", 50, 1, 60_000);
        const least: u32 = @intCast(config.int("min_chunk", 16, 1, 1_000_000));
        return .{
            .order = try pol.Order.init(slots),
            .window = least,
            .target_ns = target_ms * 1_000_000,
            .least = least,
            .safety = config.int("safety_percent", 10, 0, 90),
        };
    }

    /// Those begun first: a prompt that is half done holds pages for nothing.
    fn place(_: void, r: *const pol.Record) ?pol.Key {
        if (!pol.prefills(r)) return null;
        const waits = r.state & pol.abi.state_running == 0;
        return .{ .first = @intFromBool(waits), .second = r.arrival_ns, .id = r.id };
    }

    /// How long this step may take: until the tightest stream is due, and no longer than the target.
    fn time(self: *const SloChunk, h: *const pol.Header) i64 {
        var left = self.target_ns;
        if (h.decode_due_ns > 0) left = @min(left, h.decode_due_ns -| h.now_ns);
        return @divTrunc(@max(left, 0) *| (100 - self.safety), 100);
    }

    fn grow(self: *SloChunk, h: *const pol.Header) void {
        if (h.last_step_us == 0) return;
        const late = @as(i64, h.last_step_us) * 1000 > self.time(h);
        self.window = if (late) self.window / 2 else self.window +| self.least;
        self.window = @max(self.least, @min(self.window, h.token_budget));
    }

    pub fn decide(self: *SloChunk, step: *const pol.Step, out: *pol.Out) pol.Error!void {
        const h = step.header;
        try self.order.update(step, {}, place);
        self.pace.learn(h.last_step_us);
        if (h.cost_token_ns == 0) self.grow(h);
        const begin = @as(i64, h.cost_fixed_us) * 1000 + @as(i64, h.decode_tokens) * h.cost_token_ns;
        var spent: i64 = 0;
        var chunks = pol.Chunks.of(h);
        const free = h.decode_tokens == 0; // nobody waits for a token
        const known = h.cost_token_ns > 0;
        // A chunk that is too short for its alignment would be no chunk at all.
        const floor = @max(self.least, chunks.multiple);
        if (!free and !known) chunks.left = @min(chunks.left, @max(self.window, floor));
        const within = self.pace.forecast(self.time(h));
        const longest = chunks.max;
        for (self.order.items()) |slot| {
            const r = step.record(slot);
            const context = r.prompt_tokens -| r.remaining_prefill;
            if (!free and known) {
                const fits = pol.chunkWithin(h, context, within -| spent);
                chunks.max = @min(longest, if (out.len == 0) @max(fits, floor) else fits);
            }
            const tokens = chunks.take(r.remaining_prefill) orelse break;
            const limited = tokens < r.remaining_prefill and tokens < longest and chunks.left > 0;
            if (!out.add(.{
                .slot = slot,
                .tokens = tokens,
                .id_low = @truncate(r.id),
                .reason = if (limited) reason_limited else 0,
            })) break;
            spent +|= cost(h, context, tokens);
        }
        self.pace.forecast_ns = if (known) begin +| spent else 0;
    }
};

comptime {
    pol.policy(SloChunk);
}

const expect = @import("std").testing.expect;

test "a forecast that is wrong by a factor is learned" {
    // As slow again as the figures say: learned from a few steps, and forgotten in some more.
    var pace: Pace = .{};
    for (0..6) |_| {
        pace.forecast_ns = 10_000_000;
        pace.learn(20_000);
    }
    try expect(pace.factor > 2000 and pace.factor <= 2048);
    try expect(pace.forecast(20_000_000) >= 10_000_000 and pace.forecast(20_000_000) < 10_300_000);
    for (0..80) |_| {
        pace.forecast_ns = 10_000_000;
        pace.learn(10_000);
    }
    try expect(pace.factor >= 1024 and pace.factor < 1060);
}

test "no figure does harm" {
    var pace: Pace = .{ .forecast_ns = 1 };
    pace.learn(~@as(u32, 0));
    try expect(pace.factor <= Pace.most);
    const max = ~@as(u32, 0);
    const h: pol.Header = .{ .cost_token_ns = max, .cost_ctx_ps = max };
    try expect(cost(&h, max, max) > 0);
    try expect(pace.forecast(-5) == 0 and pace.forecast(1 << 62) > 0);
}
