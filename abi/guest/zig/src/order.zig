//! An order of slots that follows the changed list.

const std = @import("std");
const pol = @import("pol.zig");

/// Orders requests: by first, then second, then id, all ascending. Ids are unique, so no two are equal.
pub const Key = struct {
    first: i64,
    second: i64 = 0,
    id: u64,

    /// Written without branches: fuel is charged for both sides of one.
    pub fn before(a: *const Key, b: *const Key) bool {
        const ids = @intFromBool(a.id < b.id);
        const seconds = @intFromBool(a.second < b.second) | (@intFromBool(a.second == b.second) & ids);
        return (@intFromBool(a.first < b.first) | (@intFromBool(a.first == b.first) & seconds)) != 0;
    }
};

/// Up to this many moves, and one more for each 128 slots in the order, are done one by one: each costs a
/// search and half a copy of the list. More are sorted and merged in a walk along all of it.
const few = 16;

/// Keeps slots in order from step to step: a step costs what changed, not what waits. Read `items()`.
/// Keys must depend on the record alone, not on the time; a request that ages at the same rate as all
/// others keeps its place, so put the arrival into the key.
pub const Order = struct {
    slots: []u32, // in order: slots[0..len]
    len: usize = 0,
    keys: []Key, // by slot, of those that are in
    in: []bool, // by slot
    moved: []u32, // slots that leave, enter or change place
    scratch: []u32, // for sorting

    /// Takes memory for this many slots.
    pub fn init(slots: u32) pol.Error!Order {
        return make(slots) catch return pol.fail(error.OutOfMemory, "no memory for the order of all slots");
    }

    fn make(slots: u32) !Order {
        return .{
            .slots = try pol.take(u32, slots),
            .keys = try pol.take(Key, slots),
            .in = try pol.take(bool, slots),
            .moved = try pol.take(u32, slots),
            .scratch = try pol.take(u32, slots),
        };
    }

    /// The slots, in order, until the next update.
    pub fn items(self: *const Order) []const u32 {
        return self.slots[0..self.len];
    }

    /// Follows the changed list; once a step, first thing. keyOf(context, record) gives a record's
    /// place, or null when it does not belong into the order.
    pub fn update(
        self: *Order,
        step: *const pol.Step,
        context: anytype,
        comptime keyOf: fn (@TypeOf(context), *const pol.Record) ?Key,
    ) pol.Error!void {
        if (step.header.flags & pol.abi.flag_resync != 0) {
            @memset(self.in, false);
            self.len = 0;
        }
        var n: usize = 0;
        for (step.changed) |slot| {
            if (slot >= self.in.len or n >= self.moved.len) {
                return pol.fail(error.BadArgument, "the changed list names a slot beyond the table");
            }
            if (self.same(slot, keyOf(context, step.record(slot)))) continue;
            self.moved[n] = slot;
            n += 1;
        }
        if (n <= few + self.len / 128) {
            for (self.moved[0..n]) |slot| self.one(slot, keyOf(context, step.record(slot)));
            return;
        }
        for (self.moved[0..n]) |slot| self.in[slot] = false;
        self.sweep();
        var added: usize = 0;
        for (self.moved[0..n]) |slot| {
            if (keyOf(context, step.record(slot))) |key| {
                self.keys[slot] = key;
                self.in[slot] = true;
                self.moved[added] = slot;
                added += 1;
            }
        }
        self.merge(self.moved[0..added]);
    }

    fn same(self: *const Order, slot: u32, key: ?Key) bool {
        const k = key orelse return !self.in[slot];
        const old = &self.keys[slot];
        return self.in[slot] and old.first == k.first and old.second == k.second and old.id == k.id;
    }

    /// The first place in items() whose key is not before key: where a part of the order begins.
    pub fn find(self: *const Order, key: *const Key) usize {
        var low: usize = 0;
        var high = self.len;
        while (low < high) {
            const mid = low + (high - low) / 2;
            if (self.keys[self.slots[mid]].before(key)) low = mid + 1 else high = mid;
        }
        return low;
    }

    /// Gives one slot its new place.
    fn one(self: *Order, slot: u32, key: ?Key) void {
        if (self.in[slot]) {
            const at = self.find(&self.keys[slot]);
            self.len -= 1;
            std.mem.copyForwards(u32, self.slots[at..self.len], self.slots[at + 1 .. self.len + 1]);
        }
        self.in[slot] = key != null;
        const k = key orelse return;
        self.keys[slot] = k;
        const at = self.find(&k);
        std.mem.copyBackwards(u32, self.slots[at + 1 .. self.len + 1], self.slots[at..self.len]);
        self.slots[at] = slot;
        self.len += 1;
    }

    /// Drops the slots that are not in.
    fn sweep(self: *Order) void {
        var kept: usize = 0;
        for (self.slots[0..self.len]) |slot| {
            self.slots[kept] = slot;
            kept += @intFromBool(self.in[slot]);
        }
        self.len = kept;
    }

    /// Written for few charges of fuel; the slots are below keys.len, as update made sure.
    fn before(self: *const Order, a: u32, b: u32) bool {
        return self.keys.ptr[a].before(&self.keys.ptr[b]);
    }

    /// Merges two sorted parts, which lie one behind the other, into `to`.
    fn weave(self: *const Order, parts: []const u32, mid: usize, to: [*]u32) void {
        var a: usize = 0;
        var b = mid;
        var n: usize = 0;
        // Else they are in order as they stand.
        if (b < parts.len and self.before(parts[b], parts[mid - 1])) {
            while (a < mid and b < parts.len) : (n += 1) {
                const x = parts.ptr[a];
                const y = parts.ptr[b];
                const second = @intFromBool(self.before(y, x));
                to[n] = if (second == 1) y else x;
                a += 1 - @as(usize, second);
                b += second;
            }
        }
        @memcpy(to[n..][0 .. mid - a], parts[a..mid]);
        @memcpy(to[n + mid - a ..][0 .. parts.len - b], parts[b..]);
    }

    /// Sorts slots by their keys: runs of 8 by insertion, then merged.
    fn sort(self: *const Order, slots: []u32) void {
        for (1..@max(slots.len, 1)) |i| {
            const slot = slots[i];
            const start = i & ~@as(usize, 7);
            var j = i;
            while (j > start and self.before(slot, slots[j - 1])) : (j -= 1) slots[j] = slots[j - 1];
            slots[j] = slot;
        }
        var from = slots;
        var to = self.scratch[0..slots.len];
        var width: usize = 8;
        while (width < slots.len) : (width *= 2) {
            var start: usize = 0;
            while (start < slots.len) : (start += 2 * width) {
                const end = @min(start + 2 * width, slots.len);
                self.weave(from[start..end], @min(width, end - start), to.ptr + start);
            }
            const other = from;
            from = to;
            to = other;
        }
        if (from.ptr != slots.ptr) @memcpy(slots, from);
    }

    /// Sorts what is added and merges it from the back.
    fn merge(self: *Order, added: []u32) void {
        self.sort(added);
        var kept = self.len;
        var n = added.len;
        self.len += n;
        var end = self.len;
        while (n > 0) {
            end -= 1;
            if (kept > 0 and self.keys[added[n - 1]].before(&self.keys[self.slots[kept - 1]])) {
                kept -= 1;
                self.slots[end] = self.slots[kept];
            } else {
                n -= 1;
                self.slots[end] = added[n];
            }
        }
    }
};
