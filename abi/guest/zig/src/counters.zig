//! How much service each tenant had.

const std = @import("std");
const pol = @import("pol.zig");

/// Keeps how much service each tenant had, by its weight: the one with the least is next. A tenant that
/// comes back after a rest starts no lower than the least of those that are there: rest is not saved up.
/// Tenants beyond the number made room for share the last counter.
pub const Counters = struct {
    service: []i64, // thousandths of a token at weight 1
    here: []bool,

    /// Takes memory for this many tenants.
    pub fn init(tenants: usize) pol.Error!Counters {
        return make(@max(tenants, 1)) catch
            return pol.fail(error.OutOfMemory, "no memory for the tenants' counters");
    }

    fn make(n: usize) !Counters {
        return .{ .service = try pol.take(i64, n), .here = try pol.take(bool, n) };
    }

    fn index(self: *const Counters, tenant: u32) usize {
        return @min(tenant, self.service.len - 1);
    }

    /// The tenant's service so far.
    pub fn of(self: *const Counters, tenant: u32) i64 {
        return self.service[self.index(tenant)];
    }

    /// The tenant has requests.
    pub fn enter(self: *Counters, tenant: u32) void {
        const at = self.index(tenant);
        if (self.here[at]) return;
        var least: i64 = std.math.maxInt(i64);
        for (self.here, self.service) |here, service| {
            if (here) least = @min(least, service);
        }
        if (least != std.math.maxInt(i64)) self.service[at] = @max(self.service[at], least);
        self.here[at] = true;
    }

    /// The tenant has no requests any more.
    pub fn leave(self: *Counters, tenant: u32) void {
        self.here[self.index(tenant)] = false;
    }

    /// That many tokens were computed for the tenant; its weight is in thousandths, 0 means 1000.
    pub fn charge(self: *Counters, tenant: u32, tokens: u32, weight_milli: u32) void {
        self.service[self.index(tenant)] += amount(tokens, weight_milli);
    }

    /// Takes back what was charged at the same weight and not computed.
    pub fn refund(self: *Counters, tenant: u32, tokens: u32, weight_milli: u32) void {
        self.service[self.index(tenant)] -= amount(tokens, weight_milli);
    }
};

fn amount(tokens: u32, weight_milli: u32) i64 {
    const weight: i64 = if (weight_milli == 0) 1000 else weight_milli;
    return @divTrunc(@as(i64, tokens) * 1_000_000, weight);
}
