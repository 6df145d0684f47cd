//! Counts events: each decision's reason is how many there were, and the count outlives a swap.
const std = @import("std");
const pol = @import("pol");

pub const panic = pol.panic;

const STATE_VERSION = 1;

const Mine = struct {
    pub const name = "mine";
    pub const version = "1.0.0";
    pub const state_version = STATE_VERSION;
    pub const caps_optional =
        pol.abi.cap_chunk_lengths | pol.abi.cap_log | pol.abi.cap_events | pol.abi.cap_state;

    seen: u64 = 0,

    pub fn init(_: *pol.Config, _: u32) pol.Error!Mine {
        return .{};
    }

    pub fn decide(self: *Mine, step: *const pol.Step, out: *pol.Out) pol.Error!void {
        if (step.slots == 0 or !pol.prefills(step.record(0))) return;
        if (!out.run(0, step.record(0), pol.abi.tokens_auto)) return;
        out.items[out.len - 1].reason = @truncate(self.seen);
    }

    pub fn observe(self: *Mine, events: []const pol.Event) pol.Error!void {
        for (events) |e| {
            if (e.extra == 77) @panic("it was 77");
            if (e.extra == 78) return pol.fail(error.BadArgument, "it was 78");
        }
        self.seen += events.len;
    }

    pub fn save(self: *const Mine, to: []u8) usize {
        if (to.len >= 8) std.mem.writeInt(u64, to[0..8], self.seen, .little);
        return 8;
    }

    pub fn load(self: *Mine, from: []const u8, from_version: u16) pol.Error!void {
        if (from_version != STATE_VERSION) return pol.fail(error.StateVersion, "not this version");
        if (from.len != 8) return pol.fail(error.BadArgument, "not eight bytes");
        self.seen = std.mem.readInt(u64, from[0..8], .little);
    }
};

comptime {
    pol.policy(Mine);
}
