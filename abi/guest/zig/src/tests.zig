//! The helpers against naive twins, natively: zig test src/pol.zig.

const std = @import("std");
const pol = @import("pol.zig");

const expect = std.testing.expect;

const slots = 200;
var records: [slots]pol.Record = undefined;

fn keyOf(_: void, r: *const pol.Record) ?pol.Key {
    if (!pol.prefills(r)) return null;
    return .{ .first = r.remaining_prefill % 50, .second = r.priority, .id = r.id };
}

/// The order found by sorting all of the table.
fn naive(space: []u32) []u32 {
    var n: usize = 0;
    for (0..slots) |slot| {
        if (keyOf({}, &records[slot]) == null) continue;
        space[n] = @intCast(slot);
        n += 1;
    }
    std.sort.insertion(u32, space[0..n], {}, struct {
        fn less(_: void, a: u32, b: u32) bool {
            return keyOf({}, &records[a]).?.before(&keyOf({}, &records[b]).?);
        }
    }.less);
    return space[0..n];
}

test "the order follows the changed list" {
    var chance = std.Random.DefaultPrng.init(1);
    const random = chance.random();
    var order = try pol.Order.init(slots);
    var top = try pol.Top.init(10);
    var ids: u64 = 0;
    @memset(&records, .{});
    for (0..300) |round| {
        var changed: [slots]u32 = undefined;
        var n: usize = 0;
        const one_in: u32 = if (round % 3 == 0) 2 else 40;
        for (0..slots) |slot| {
            if (random.uintLessThan(u32, one_in) != 0) continue;
            ids += 1;
            records[slot] = .{
                .id = ids,
                .state = random.uintLessThan(u32, 8),
                .remaining_prefill = random.uintLessThan(u32, 500),
                .priority = random.intRangeAtMost(i32, -2, 2),
            };
            changed[n] = @intCast(slot);
            n += 1;
        }
        var header: pol.Header = .{};
        const step = pol.Step.of(&header, &records, changed[0..n]);
        try order.update(&step, {}, keyOf);
        var space: [slots]u32 = undefined;
        const want = naive(&space);
        try std.testing.expectEqualSlices(u32, want, order.items());
        top.clear();
        for (want) |slot| top.offer(keyOf({}, &records[slot]).?, slot);
        for (top.sorted(), 0..) |entry, i| try expect(entry.slot == want[i]);
    }
}

test "chunks share the budget" {
    const h: pol.Header = .{ .token_budget = 100, .decode_tokens = 10, .chunk_max = 64, .chunk_align = 16 };
    var chunks = pol.Chunks.of(&h);
    try expect(chunks.take(1000).? == 64);
    try expect(chunks.take(10).? == 10);
    try expect(chunks.take(1000).? == 16);
    try expect(chunks.take(1000) == null);
}

test "a chunk within the target" {
    var h: pol.Header = .{ .chunk_max = 2048 };
    try expect(pol.chunkWithin(&h, 0, 1) == 2048);
    h.cost_fixed_us = 1000;
    h.cost_token_ns = 10_000;
    h.decode_tokens = 10;
    try expect(pol.chunkWithin(&h, 0, 6_100_000) == 500);
    try expect(pol.chunkWithin(&h, 0, 1_000_000) == 0);
    try expect(pol.chunkWithin(&h, 0, 1 << 60) == 2048);
    h.cost_ctx_ps = 10_000;
    try expect(pol.chunkWithin(&h, 1000, 6_100_000) == 236);
}

test "pages as the host counts them" {
    var h: pol.Header = .{ .page_tokens = 16, .free_pages = 10, .n_running = 2, .reserve_pages = 3 };
    var pages = pol.Pages.of(&h);
    const waits: pol.Record = .{
        .state = pol.abi.state_live,
        .prompt_tokens = 100,
        .cached_tokens = 24,
        .remaining_prefill = 76,
        .pages_needed = 6,
    };
    try expect(pages.needed(&waits, 8) == 1 and pages.needed(&waits, 9) == 2 and pages.needed(&waits, 76) == 6);
    try expect(pages.take(&waits, 76) and pages.free == 4);
    try expect(!pages.take(&waits, 8) and pages.free == 4); // the reserve stays free
    const runs: pol.Record = .{
        .state = pol.abi.state_live | pol.abi.state_running,
        .prompt_tokens = 60,
        .generated = 4,
        .remaining_prefill = 34,
        .pages_needed = 2,
    };
    try expect(pages.needed(&runs, 2) == 0 and pages.needed(&runs, 3) == 1);
    try expect(!pages.take(&runs, 34) and pages.take(&runs, 18) and pages.free == 3);
    try expect(pages.take(&runs, 2) and pages.free == 3); // what needs none always fits
    h.n_running = 0;
    h.free_pages = 7;
    pages = pol.Pages.of(&h);
    try expect(pages.take(&waits, 76)); // nobody else could free the reserve
}

test "tenants and peers" {
    const header: pol.Header = .{};
    var step = pol.Step.of(&header, &.{}, &.{});
    try expect(step.tenant(0) == null and step.peer(1) == null);
    step.tenants = &.{ .{}, .{} };
    step.peers = &.{.{}};
    try expect(step.tenant(1) == &step.tenants[1] and step.tenant(2) == null);
    try expect(step.peer(1) == &step.peers[0] and step.peer(0) == null and step.peer(2) == null);
}

test "counters do not save up rest" {
    var c = try pol.Counters.init(3);
    c.enter(0);
    c.charge(0, 100, 0);
    c.enter(1);
    try expect(c.of(0) == 100_000 and c.of(1) == 100_000);
    c.charge(1, 100, 2000);
    try expect(c.of(1) == 150_000);
    c.leave(0);
    c.charge(1, 1, 1000);
    c.enter(0);
    try expect(c.of(0) == 151_000);
    c.enter(7);
    try expect(c.of(2) == 151_000);
    c.charge(1, 7, 3000);
    c.refund(1, 7, 3000);
    try expect(c.of(1) == 151_000);
}

test "settings" {
    const Case = struct { text: []const u8, n: i64 = 5, flag: bool = false, wrong: []const u8 = "" };
    const cases = [_]Case{
        .{ .text = "{}" },
        .{ .text = " { } " },
        .{ .text = "{\"n\":7,\"flag\":true}", .n = 7, .flag = true },
        .{ .text = "{\"flag\" : false , \"n\" : -3 }", .n = -3 },
        .{ .text = "{\"n\":101}", .wrong = "n must be a whole number from -10 to 100" },
        .{ .text = "{\"n\":1.5}", .wrong = "n must be a whole number" },
        .{ .text = "{\"n\":+1}", .wrong = "n must be a whole number" },
        .{ .text = "{\"n\":1_0}", .wrong = "n must be a whole number" },
        .{ .text = "{\"flag\":1}", .wrong = "flag must be true or false" },
        .{ .text = "{\"x\":{\"n\":[1,\"}\"]}}", .wrong = "there is no setting x" },
        .{ .text = "[]", .wrong = "not a JSON object" },
        .{ .text = "{\"n\":", .wrong = "not a JSON object" },
        .{ .text = "{\"n\" 1}", .wrong = "not a JSON object" },
        .{ .text = "", .wrong = "not a JSON object" },
    };
    for (cases) |case| {
        var config: pol.Config = .{ .text = case.text };
        const n = config.int("n", 5, -10, 100);
        const flag = config.boolean("flag", false);
        if (config.end()) |_| {
            try expect(case.wrong.len == 0 and n == case.n and flag == case.flag);
        } else |e| {
            errdefer std.debug.print("{s}: {s}\n", .{ case.text, pol.said() });
            try expect(e == error.BadConfig and case.wrong.len > 0);
            try expect(std.mem.indexOf(u8, pol.said(), case.wrong) != null);
        }
    }
}
