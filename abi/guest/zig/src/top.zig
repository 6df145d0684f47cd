//! The first k of any number.

const std = @import("std");
const pol = @import("pol.zig");

/// A slot and its place.
pub const Ranked = struct { key: pol.Key, slot: u32 };

/// Keeps the k first of any number of slots offered: for keys that depend on the time, or on each
/// other. Clear it, offer all, then read `sorted()`.
pub const Top = struct {
    heap: []Ranked, // the last in order at 0
    len: usize = 0,

    /// Takes memory for k entries.
    pub fn init(k: usize) pol.Error!Top {
        const heap = pol.take(Ranked, k) catch return pol.fail(error.OutOfMemory, "no memory for the first k");
        return .{ .heap = heap };
    }

    pub fn clear(self: *Top) void {
        self.len = 0;
    }

    /// Keeps a slot if it is among the first.
    pub fn offer(self: *Top, key: pol.Key, slot: u32) void {
        const entry: Ranked = .{ .key = key, .slot = slot };
        if (self.len == self.heap.len) {
            if (self.len > 0 and key.before(&self.heap[0].key)) self.sink(entry);
            return;
        }
        var at = self.len;
        self.len += 1;
        while (at > 0 and self.heap[(at - 1) / 2].key.before(&key)) : (at = (at - 1) / 2) {
            self.heap[at] = self.heap[(at - 1) / 2];
        }
        self.heap[at] = entry;
    }

    /// Puts an entry in the first one's place and lets it sink.
    fn sink(self: *Top, entry: Ranked) void {
        var at: usize = 0;
        while (2 * at + 1 < self.len) {
            var child = 2 * at + 1;
            if (child + 1 < self.len and self.heap[child].key.before(&self.heap[child + 1].key)) child += 1;
            if (!entry.key.before(&self.heap[child].key)) break;
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = entry;
    }

    fn less(_: void, a: Ranked, b: Ranked) bool {
        return a.key.before(&b.key);
    }

    /// The entries in order, until clear.
    pub fn sorted(self: *Top) []const Ranked {
        std.sort.pdq(Ranked, self.heap[0..self.len], {}, less);
        return self.heap[0..self.len];
    }
};
