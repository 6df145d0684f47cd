//! Write a scheduling policy in Zig: no allocator, no allocation while deciding.
//!
//!     const pol = @import("pol");
//!     pub const panic = pol.panic;
//!
//!     const Mine = struct {
//!         pub const name = "mine";
//!         pub const version = "1.0.0";
//!         pub fn init(config: *pol.Config, slots: u32) pol.Error!Mine { … }
//!         pub fn decide(self: *Mine, step: *const pol.Step, out: *pol.Out) pol.Error!void { … }
//!     };
//!
//!     comptime {
//!         pol.policy(Mine);
//!     }
//!
//! `init` runs once: it reads settings and takes memory (`take`, `Order.init`, `Top.init`). `decide`
//! runs once a step. What the fields mean, and what the host checks, stands in SPEC.md. Compiled for
//! anything but wasm32 the same code runs natively, so that `zig test` tries it.
//!
//! Needs Zig 0.15. Build with ReleaseSafe: ReleaseFast turns a bug into garbage instead of a fault.

const builtin = @import("builtin");
const std = @import("std");

pub const abi = @import("abi.zig");
pub const Config = @import("config.zig").Config;
pub const Counters = @import("counters.zig").Counters;
pub const Order = @import("order.zig").Order;
pub const Key = @import("order.zig").Key;
pub const Top = @import("top.zig").Top;
pub const Ranked = @import("top.zig").Ranked;
pub const Chunks = @import("chunks.zig").Chunks;
pub const chunkWithin = @import("chunks.zig").chunkWithin;
pub const Pages = @import("pages.zig").Pages;
pub const take = @import("memory.zig").take;

const memory = @import("memory.zig");

pub const Header = abi.Header;
pub const Record = abi.Record;
pub const Decision = abi.Decision;
pub const Tenant = abi.Tenant;
pub const Peer = abi.Peer;
pub const Event = abi.Event;

/// Why a policy cannot go on; `fail` keeps words for the host's log.
pub const Error = error{
    BadArgument,
    Unsupported,
    BadConfig,
    OutOfMemory,
    Inconsistent,
    StateVersion,
    Unspecified,
};

fn codeOf(e: Error) i32 {
    return switch (e) {
        error.BadArgument => abi.code_bad_argument,
        error.Unsupported => abi.code_unsupported,
        error.BadConfig => abi.code_bad_config,
        error.OutOfMemory => abi.code_out_of_memory,
        error.Inconsistent => abi.code_inconsistent,
        error.StateVersion => abi.code_state_version,
        error.Unspecified => abi.code_unspecified,
    };
}

var message: [512]u8 = undefined;
var message_len: usize = 0;

/// Keeps a message for the host's log and returns the error: `return pol.fail(error.BadArgument, "why")`.
pub fn fail(e: Error, why: []const u8) Error {
    message_len = 0;
    say(why);
    return e;
}

/// Adds to the message; what does not fit is cut.
pub fn say(words: []const u8) void {
    const n = @min(words.len, message.len - message_len);
    @memcpy(message[message_len..][0..n], words[0..n]);
    message_len += n;
}

/// What was said last.
pub fn said() []const u8 {
    return message[0..message_len];
}

/// For the root file: `pub const panic = pol.panic;`. The host then logs the words of a panic.
pub const panic = std.debug.FullPanic(panicked);

fn panicked(words: []const u8, _: ?usize) noreturn {
    message_len = 0;
    say("panic: ");
    say(words);
    @trap();
}

/// The slot holds a request.
pub fn live(r: *const Record) bool {
    return r.state & abi.state_live != 0;
}

/// There is prompt to compute, so that it can be run with a chunk: waiting and prefilling requests.
pub fn prefills(r: *const Record) bool {
    return r.state & (abi.state_live | abi.state_decoding) == abi.state_live and r.remaining_prefill > 0;
}

/// One step, as the host shows it.
pub const Step = struct {
    header: *const Header,
    /// Slots added, changed or freed since the last step, ascending; all live ones on a resync.
    changed: []const u32,
    /// By index; empty where the host shows none (capability tenants).
    tenants: []const Tenant = &.{},
    /// The first has index 1; empty where the host shows none (capability peers).
    peers: []const Peer = &.{},
    records: [*]const u8,
    stride: usize,
    slots: u32,

    /// A step from plain slices, for tests.
    pub fn of(header: *const Header, records: []const Record, changed: []const u32) Step {
        return .{
            .header = header,
            .changed = changed,
            .records = @ptrCast(records.ptr),
            .stride = @sizeOf(Record),
            .slots = @intCast(records.len),
        };
    }

    fn at(header: *const Header) Step {
        return .{
            .header = header,
            .changed = list(u32, header.changed_ptr, header.n_changed),
            .tenants = list(Tenant, header.tenants_ptr, header.n_tenants),
            .peers = list(Peer, header.peers_ptr, header.n_peers),
            .records = @ptrFromInt(header.records_ptr),
            .stride = header.record_stride,
            .slots = header.n_slots,
        };
    }

    /// The record of a slot.
    pub fn record(self: *const Step, slot: u32) *const Record {
        std.debug.assert(slot < self.slots);
        return @ptrCast(@alignCast(self.records + slot * self.stride));
    }

    /// The tenant that a record names.
    pub fn tenant(self: *const Step, index: u32) ?*const Tenant {
        return if (index < self.tenants.len) &self.tenants[index] else null;
    }

    /// The destination that a record names; peer 0 is none.
    pub fn peer(self: *const Step, index: u16) ?*const Peer {
        return if (index > 0 and index <= self.peers.len) &self.peers[index - 1] else null;
    }
};

/// A table of the host's; one without entries may have no address.
fn list(comptime T: type, at: u32, len: u32) []const T {
    if (len == 0) return &.{};
    const items: [*]const T = @ptrFromInt(at);
    return items[0..len];
}

/// The answer, most important decision first.
pub const Out = struct {
    items: []Decision,
    len: usize = 0,

    /// Adds a decision; false when the list is full.
    pub fn add(self: *Out, decision: Decision) bool {
        if (self.len == self.items.len) return false;
        self.items[self.len] = decision;
        self.len += 1;
        return true;
    }

    /// Computes that many tokens of a request's prompt, or abi.tokens_auto.
    pub fn run(self: *Out, slot: u32, r: *const Record, tokens: u32) bool {
        return self.add(.{ .slot = slot, .tokens = tokens, .id_low = @truncate(r.id) });
    }

    /// Leaves a request out of this step, a decoding one too.
    pub fn skip(self: *Out, slot: u32, r: *const Record) bool {
        return self.add(.{ .slot = slot, .id_low = @truncate(r.id), .action = abi.action_skip });
    }

    /// Takes the pages of a running request that is not pinned; it is computed again later. Only with
    /// abi.cap_preempt, and before the runs that it makes room for.
    pub fn preempt(self: *Out, slot: u32, r: *const Record, reason: u16) bool {
        const action = abi.action_preempt_recompute;
        return self.add(.{ .slot = slot, .id_low = @truncate(r.id), .action = action, .reason = reason });
    }
};

const host = struct {
    extern "pol_v1" fn log(level: i32, at: [*]const u8, len: usize) void;
    extern "pol_v1" fn log_level() i32;
    extern "pol_v1" fn granted() u64;
};

/// Writes a line to the engine's log; levels are abi.log_debug to abi.log_error.
pub fn log(level: i32, line: []const u8) void {
    if (comptime is_guest) host.log(level, line.ptr, line.len);
}

/// The lowest level that is written.
pub fn logLevel() i32 {
    return if (comptime is_guest) host.log_level() else abi.log_off;
}

/// The capabilities this module got.
pub fn granted() u64 {
    return if (comptime is_guest) host.granted() else abi.cap_chunk_lengths;
}

pub const is_guest = builtin.cpu.arch == .wasm32;

/// The one registration line, in a comptime block of the root file: makes a type the module's policy. It
/// may also declare `flags`, `caps_required` and `caps_optional`; and
///
/// - `observe(self: *P, events: []const Event) Error!void`, with capability events: what became of requests
///   since the last step, before the next is decided;
/// - `state_version`, `save(self: *const P, to: []u8) usize` and `load(self: *P, from: []const u8, version:
///   u16) Error!void`, with capability state: what is handed to the next copy at a swap. save returns the
///   state's bytes; when they do not fit, nothing needs to be written, and it is asked again with more room.
pub fn policy(comptime P: type) void {
    const E = Exports(P);
    if (!is_guest) return;
    @export(&E.describe, .{ .name = "pol_abi_v1" });
    @export(&memory.buffer, .{ .name = "pol_buffer" });
    @export(&E.start, .{ .name = "pol_init" });
    @export(&E.decide, .{ .name = "pol_decide" });
    @export(&lastError, .{ .name = "pol_last_error" });
    if (@hasDecl(P, "observe")) @export(&E.observe, .{ .name = "pol_observe" });
    if (@hasDecl(P, "save")) {
        @export(&E.save, .{ .name = "pol_save" });
        @export(&E.load, .{ .name = "pol_load" });
    }
}

fn lastError() callconv(.c) u64 {
    return @as(u64, @intFromPtr(&message)) << 32 | message_len;
}

fn address(p: anytype) u32 {
    return @intCast(@intFromPtr(p));
}

fn Exports(comptime P: type) type {
    return struct {
        // A guest is called by one thread, one call at a time.
        var running: P = undefined;
        var descriptor: abi.Descriptor = .{};

        /// What the policy declares under a name, or the usual.
        fn given(comptime field: []const u8, comptime usual: comptime_int) comptime_int {
            return if (@hasDecl(P, field)) @field(P, field) else usual;
        }

        fn describe() callconv(.c) *const abi.Descriptor {
            descriptor = .{
                .magic = abi.magic,
                .size = @sizeOf(abi.Descriptor),
                .minor = abi.minor,
                .flags = given("flags", abi.desc_wants_changed | abi.desc_selects | abi.desc_sets_chunks),
                .state_version = given("state_version", 0),
                .caps_required = given("caps_required", 0),
                .caps_optional = given("caps_optional", abi.cap_chunk_lengths | abi.cap_log),
                .name_ptr = address(P.name.ptr),
                .name_len = P.name.len,
                .version_ptr = address(P.version.ptr),
                .version_len = P.version.len,
                .record_bytes = @sizeOf(Record),
                .header_bytes = @sizeOf(Header),
            };
            return &descriptor;
        }

        fn start(len: i32) callconv(.c) i32 {
            memory.deciding = false;
            defer memory.deciding = true;
            const text = memory.region(abi.buffer_config);
            var config: Config = .{ .text = text[0..@intCast(@max(len, 0))] };
            if (config.text.len == 0) config.text = "{}";
            const slots = memory.region(abi.buffer_records).len / @sizeOf(Record);
            const made = P.init(&config, @intCast(slots)) catch |e| {
                return codeOf(config.wrong orelse e);
            };
            config.end() catch |e| return codeOf(e);
            running = made;
            return 0;
        }

        fn decide(h: *const Header) callconv(.c) i32 {
            if (h.magic != abi.magic or h.header_size < @sizeOf(Header) or
                h.record_stride < @sizeOf(Record) or h.decision_stride != @sizeOf(Decision))
            {
                return codeOf(fail(error.BadArgument, "the step header is not of ABI version 1"));
            }
            const space: [*]Decision = @ptrFromInt(h.decisions_ptr);
            var out: Out = .{ .items = space[0..h.decisions_cap] };
            const step = Step.at(h);
            running.decide(&step, &out) catch |e| return codeOf(e);
            return @intCast(out.len);
        }

        fn observe(n: u32) callconv(.c) i32 {
            const region = memory.region(abi.buffer_events);
            if (n > region.len / @sizeOf(Event)) {
                return codeOf(fail(error.BadArgument, "more events than fit their region"));
            }
            const events: [*]const Event = @ptrCast(@alignCast(region.ptr));
            running.observe(events[0..n]) catch |e| return codeOf(e);
            return 0;
        }

        fn save(room: u32) callconv(.c) i32 {
            const region = memory.region(abi.buffer_state);
            return @intCast(running.save(region[0..@min(room, region.len)]));
        }

        fn load(len: u32, version: u32) callconv(.c) i32 {
            const region = memory.region(abi.buffer_state);
            running.load(region[0..@min(len, region.len)], @truncate(version)) catch |e| return codeOf(e);
            return 0;
        }
    };
}

test {
    _ = @import("tests.zig");
}
