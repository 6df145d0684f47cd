//! The SDK as a module of Zig's package manager: `@import("pol")`.

const std = @import("std");

pub fn build(b: *std.Build) void {
    _ = b.addModule("pol", .{ .root_source_file = b.path("src/pol.zig") });
}
