//! Memory that is taken once and never given back.

const builtin = @import("builtin");
const std = @import("std");
const abi = @import("abi.zig");

const is_guest = builtin.cpu.arch == .wasm32;

pub var deciding: bool = false;

const heap_base = struct {
    extern var __heap_base: u8;
};

/// Where the next bytes are: in the guest an address, natively an offset into room.
var next: usize = 0;
var room: [if (is_guest) 0 else 16 << 20]u8 align(16) = undefined;

/// Takes zeroed memory, aligned to 16, for the life of the module; only in init.
pub fn take(comptime T: type, len: usize) error{OutOfMemory}![]T {
    comptime std.debug.assert(@alignOf(T) <= 16);
    if (deciding) return error.OutOfMemory;
    const bytes = std.math.mul(usize, len, @sizeOf(T)) catch return error.OutOfMemory;
    const p = raw(bytes) orelse return error.OutOfMemory;
    @memset(p[0..bytes], 0);
    const items: [*]T = @ptrCast(@alignCast(p));
    return items[0..len];
}

fn raw(bytes: usize) ?[*]u8 {
    if (bytes > 1 << 30) return null;
    const size = (@max(bytes, 1) + 15) & ~@as(usize, 15);
    if (comptime !is_guest) {
        if (size > room.len - next) return null;
        defer next += size;
        return @ptrCast(&room[next]);
    }
    if (next == 0) next = (@intFromPtr(&heap_base.__heap_base) + 15) & ~@as(usize, 15);
    const end = next + size;
    const have = @wasmMemorySize(0) << 16;
    if (end > have and @wasmMemoryGrow(0, (end - have + 65535) >> 16) < 0) return null;
    defer next = end;
    return @ptrFromInt(next);
}

var regions = [_][]u8{&.{}} ** (abi.buffer_peers + 1);

/// The region of a kind as far as the host asked for it.
pub fn region(kind: usize) []u8 {
    return regions[kind];
}

/// The body of pol_buffer.
pub fn buffer(kind: i32, bytes: u32) callconv(.c) ?[*]u8 {
    if (kind < 0 or kind > abi.buffer_peers) return null;
    const have = &regions[@intCast(kind)];
    if (have.len == 0 or bytes > have.len) {
        const p = raw(bytes) orelse return null;
        have.* = p[0..bytes];
    }
    return have.ptr;
}
