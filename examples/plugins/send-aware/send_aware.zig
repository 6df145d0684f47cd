//! send-aware: prefill no faster than the network takes the KV away, and in the order that keeps both busy.
//!
//! A prefill instance that computes faster than its links drain piles up KV that waits: pages are held, and the
//! receivers wait for all of it at once. When the backlog of a link is longer than `max_backlog_ms`, no new
//! send to it starts, and those begun get as many tokens a step as the link takes away in one, until
//! the backlog is half as long. Requests that are not sent go on.
//!
//! Among the sends the order is Johnson's rule for two machines in a row (compute, then link): first those
//! whose compute is the shorter part, shortest compute first, then the others, longest transfer first. So the
//! link gets work early and the long transfers overlap with the compute of others.

const pol = @import("pol");

pub const panic = pol.panic;

const reason_paced = 1;
const reason_held = 2;

const max_peers = 256;
/// How many sends are put in order in a step, and how many requests are looked at for them.
const window = 64;
const look = 1024;
/// How many held requests are named, so that one can ask why they wait.
const named = 16;

/// One way out: to a peer, or all of them together.
const Link = struct {
    /// Its backlog was too long, and is not yet half of that.
    paused: bool = false,
    /// Prompt tokens whose KV it takes away in a step; only while paused.
    drain: u32 = 0,
};

/// A send, and how long it computes and is on its way, nanoseconds.
const Job = struct {
    slot: u32,
    compute: u64,
    transfer: u64,
    begun: bool,
    old: bool,

    /// Those begun, then those that were overtaken for long enough, by arrival; the rest by Johnson's rule.
    /// Equal ones stay as they are.
    fn before(a: *const Job, b: *const Job) bool {
        if (a.begun != b.begun) return a.begun;
        if (a.begun) return false;
        if (a.old != b.old) return a.old;
        if (a.old) return false;
        const first = a.compute <= a.transfer;
        if (first != (b.compute <= b.transfer)) return first;
        return if (first) a.compute < b.compute else a.transfer > b.transfer;
    }
};

const SendAware = struct {
    pub const name = "send-aware";
    pub const version = "1.0.0";
    pub const caps_optional = pol.abi.cap_chunk_lengths | pol.abi.cap_log | pol.abi.cap_peers;

    /// By arrival.
    sends: pol.Order,
    others: pol.Order,
    /// 0 is all of them together, the others are peers by index.
    links: []Link,
    jobs: []Job,
    n_jobs: usize = 0,
    most_us: u64,
    most_bytes: u64,
    overtake_ns: i64,

    pub fn init(config: *pol.Config, slots: u32) pol.Error!SendAware {
        const most_ms: u64 = @intCast(config.int("max_backlog_ms", 100, 1, 600_000));
        const most_mb: u64 = @intCast(config.int("max_backlog_mb", 256, 1, 1_000_000));
        const overtake_ms = config.int("max_overtake_ms", 2000, 0, 600_000);
        return .{
            .sends = try pol.Order.init(slots),
            .others = try pol.Order.init(slots),
            .links = pol.take(Link, max_peers + 1) catch return noMemory(),
            .jobs = pol.take(Job, window) catch return noMemory(),
            .most_us = most_ms * 1000,
            .most_bytes = most_mb << 20,
            .overtake_ns = overtake_ms * 1_000_000,
        };
    }

    fn noMemory() pol.Error {
        return pol.fail(error.OutOfMemory, "no memory for the links");
    }

    fn place(sends: bool, r: *const pol.Record) ?pol.Key {
        if (!pol.prefills(r) or isSend(r) != sends) return null;
        return .{ .first = r.arrival_ns, .id = r.id };
    }

    /// Brings one link up to date.
    fn watch(self: *SendAware, h: *const pol.Header, link: *Link, backlog: u64, rate: u32) void {
        // Without a measured rate only the bytes can be judged.
        const have = if (rate > 0) backlog / rate else backlog;
        const most = if (rate > 0) self.most_us else self.most_bytes;
        link.paused = if (link.paused) have > most / 2 else have > most;
        const bytes = @as(u64, rate) * @max(h.last_step_us, 1);
        const tokens = bytes / @max(h.kv_bytes_per_token, 1);
        link.drain = @intCast(@min(@max(tokens, @max(h.chunk_align, 1)), h.token_budget));
    }

    fn watchAll(self: *SendAware, step: *const pol.Step) void {
        const h = step.header;
        self.watch(h, &self.links[0], h.send_backlog_bytes, h.link_bytes_per_us);
        for (step.peers, 1..) |*peer, i| {
            if (i > max_peers) break;
            const rate = if (peer.link_bytes_per_us > 0) peer.link_bytes_per_us else h.link_bytes_per_us;
            self.watch(h, &self.links[i], peer.backlog_bytes, rate);
        }
    }

    /// The link that a send goes by, if that or all together are paused.
    fn paused(self: *SendAware, step: *const pol.Step, r: *const pol.Record) ?*Link {
        const own = if (step.peer(r.peer) != null and r.peer <= max_peers) &self.links[r.peer] else &self.links[0];
        if (own.paused) return own;
        return if (self.links[0].paused) &self.links[0] else null;
    }

    fn job(self: *const SendAware, step: *const pol.Step, slot: u32) Job {
        const h = step.header;
        const r = step.record(slot);
        const known = h.cost_token_ns > 0 and h.link_bytes_per_us > 0;
        const bytes = @as(u64, r.prompt_tokens) *| h.kv_bytes_per_token;
        return .{
            .slot = slot,
            .compute = if (known) @as(u64, r.remaining_prefill) *| h.cost_token_ns else 0,
            .transfer = if (known) bytes *| 1000 / h.link_bytes_per_us else 0,
            .begun = r.state & pol.abi.state_running != 0,
            .old = h.now_ns -| r.arrival_ns > self.overtake_ns,
        };
    }

    fn isSend(r: *const pol.Record) bool {
        return r.kind == pol.abi.kind_remote_send;
    }

    /// Puts the oldest sends that may run in order.
    fn gather(self: *SendAware, step: *const pol.Step) void {
        self.n_jobs = 0;
        const slots = self.sends.items();
        for (slots[0..@min(slots.len, look)]) |slot| {
            const r = step.record(slot);
            if (r.state & pol.abi.state_running == 0 and self.paused(step, r) != null) continue;
            const entry = self.job(step, slot);
            var at = self.n_jobs;
            while (at > 0 and entry.before(&self.jobs[at - 1])) : (at -= 1) self.jobs[at] = self.jobs[at - 1];
            self.jobs[at] = entry;
            self.n_jobs += 1;
            if (self.n_jobs == self.jobs.len) return;
        }
    }

    /// Lists one request with its chunk; false when the step is full.
    fn run(self: *SendAware, step: *const pol.Step, out: *pol.Out, chunks: *pol.Chunks, slot: u32) bool {
        const r = step.record(slot);
        var own = chunks.*;
        const link = if (isSend(r)) self.paused(step, r) else null;
        if (link) |l| own.max = @min(own.max, l.drain);
        const tokens = own.take(r.remaining_prefill) orelse return link != null and chunks.left > 0;
        if (link) |l| l.drain -|= tokens;
        chunks.left = own.left;
        return out.add(.{
            .slot = slot,
            .tokens = tokens,
            .id_low = @truncate(r.id),
            .reason = if (link != null) reason_paced else 0,
        });
    }

    /// Names the oldest of those that are held back. When nothing else runs, the first of them goes on as fast as
    /// its link: somebody must, for the host takes an engine that stands still for a broken policy.
    fn hold(self: *SendAware, step: *const pol.Step, out: *pol.Out, chunks: *pol.Chunks) void {
        const slots = self.sends.items();
        var idle = out.len == 0;
        var n: u32 = 0;
        for (slots[0..@min(slots.len, look)]) |slot| {
            const r = step.record(slot);
            if (r.state & pol.abi.state_running != 0 or self.paused(step, r) == null) continue;
            if (idle and self.run(step, out, chunks, slot) and out.len > 0) {
                idle = false;
                continue;
            }
            n += 1;
            const held: pol.Decision = .{
                .slot = slot,
                .id_low = @truncate(r.id),
                .action = pol.abi.action_skip,
                .reason = reason_held,
            };
            if (n > named or !out.add(held)) return;
        }
    }

    pub fn decide(self: *SendAware, step: *const pol.Step, out: *pol.Out) pol.Error!void {
        try self.sends.update(step, true, place);
        try self.others.update(step, false, place);
        self.watchAll(step);
        self.gather(step);
        var chunks = pol.Chunks.of(step.header);
        var others = self.others.items();
        var jobs = self.jobs[0..self.n_jobs];
        var oldest = self.sends.items();
        // By arrival; where a send would be next, it is the next of the sends in their own order.
        while (jobs.len > 0 or others.len > 0) {
            if (others.len > 0 and (jobs.len == 0 or older(step, others[0], oldest[0]))) {
                if (!self.run(step, out, &chunks, others[0])) break;
                others = others[1..];
            } else {
                if (!self.run(step, out, &chunks, jobs[0].slot)) break;
                jobs = jobs[1..];
                oldest = oldest[1..];
            }
        }
        self.hold(step, out, &chunks);
    }

    fn older(step: *const pol.Step, a: u32, b: u32) bool {
        const x = step.record(a);
        const y = step.record(b);
        return x.arrival_ns < y.arrival_ns or (x.arrival_ns == y.arrival_ns and x.id < y.id);
    }
};

comptime {
    pol.policy(SendAware);
}

const std = @import("std");

/// When the last transfer ends, if the jobs are computed one after the other and sent so too.
fn makespan(jobs: []const Job) u64 {
    var computed: u64 = 0;
    var sent: u64 = 0;
    for (jobs) |job| {
        computed += job.compute;
        sent = @max(sent, computed) + job.transfer;
    }
    return sent;
}

/// The least makespan over all orders of jobs[n..].
fn least(jobs: []Job, n: usize) u64 {
    if (n == jobs.len) return makespan(jobs);
    var best: u64 = ~@as(u64, 0);
    for (n..jobs.len) |i| {
        std.mem.swap(Job, &jobs[n], &jobs[i]);
        best = @min(best, least(jobs, n + 1));
        std.mem.swap(Job, &jobs[n], &jobs[i]);
    }
    return best;
}

test "no order ends earlier" {
    var chance = std.Random.DefaultPrng.init(3);
    const random = chance.random();
    for (0..200) |_| {
        var jobs: [6]Job = undefined;
        for (&jobs, 0..) |*job, i| job.* = .{
            .slot = @intCast(i),
            .compute = random.uintLessThan(u64, 20),
            .transfer = random.uintLessThan(u64, 20),
            .begun = false,
            .old = false,
        };
        const best = least(&jobs, 0);
        std.sort.insertion(Job, &jobs, {}, struct {
            fn less(_: void, a: Job, b: Job) bool {
                return a.before(&b);
            }
        }.less);
        try std.testing.expectEqual(best, makespan(&jobs));
    }
}
