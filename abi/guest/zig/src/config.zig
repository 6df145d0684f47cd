//! The operator's settings.

const std = @import("std");
const pol = @import("pol.zig");

const most_keys = 32;

/// A JSON object. Keys are asked for with their default and range. The first thing wrong is kept and
/// fails the load after init, as does a key nobody asked for: a typing mistake must not pass in silence.
pub const Config = struct {
    text: []const u8,
    asked: [most_keys][]const u8 = undefined,
    n_asked: usize = 0,
    wrong: ?pol.Error = null,

    /// A whole number from lowest to highest; without the key it is standard.
    pub fn int(self: *Config, key: []const u8, standard: i64, lowest: i64, highest: i64) i64 {
        const text = self.find(key) orelse return standard;
        const plain = text[0] == '-' or std.ascii.isDigit(text[0]);
        const n = std.fmt.parseInt(i64, text, 10) catch lowest -% 1;
        if (plain and n >= lowest and n <= highest and std.mem.indexOfScalar(u8, text, '_') == null) return n;
        if (self.wrong == null) {
            self.refuse(key, " must be a whole number from ");
            var digits: [24]u8 = undefined;
            pol.say(std.fmt.bufPrint(&digits, "{d}", .{lowest}) catch unreachable);
            pol.say(" to ");
            pol.say(std.fmt.bufPrint(&digits, "{d}", .{highest}) catch unreachable);
        }
        return standard;
    }

    /// True or false; without the key it is standard.
    pub fn boolean(self: *Config, key: []const u8, standard: bool) bool {
        const text = self.find(key) orelse return standard;
        if (std.mem.eql(u8, text, "true")) return true;
        if (std.mem.eql(u8, text, "false")) return false;
        self.refuse(key, " must be true or false");
        return standard;
    }

    fn refuse(self: *Config, key: []const u8, why: []const u8) void {
        if (self.wrong != null) return;
        self.wrong = pol.fail(error.BadConfig, "config: ");
        pol.say(key);
        pol.say(why);
    }

    fn find(self: *Config, key: []const u8) ?[]const u8 {
        if (self.n_asked < most_keys) {
            self.asked[self.n_asked] = key;
            self.n_asked += 1;
        }
        var members: Members = .{ .text = self.text };
        while (members.next()) |m| {
            if (std.mem.eql(u8, m.key, key)) return m.value;
        }
        if (members.broken) self.refuse("settings", " are not a JSON object");
        return null;
    }

    /// Refuses what nobody asked for.
    pub fn end(self: *Config) pol.Error!void {
        var members: Members = .{ .text = self.text };
        next: while (members.next()) |m| {
            for (self.asked[0..self.n_asked]) |key| {
                if (std.mem.eql(u8, m.key, key)) continue :next;
            }
            self.refuse("there is no setting ", m.key);
        }
        if (members.broken) self.refuse("settings", " are not a JSON object");
        if (self.wrong) |e| return e;
    }
};

const Member = struct { key: []const u8, value: []const u8 };

/// The members of a JSON object, one after the other. Keys are taken as written: one with an escape in
/// it is no setting's name.
const Members = struct {
    text: []const u8,
    at: usize = 0,
    broken: bool = false,

    fn next(self: *Members) ?Member {
        const first = self.at == 0;
        self.space();
        if (!first and self.is('}')) return null;
        if (!self.eat(if (first) '{' else ',')) return null;
        if (first and self.is('}')) return null;
        if (!self.is('"')) return self.stop();
        const key = self.skip() orelse return self.stop();
        self.space();
        if (!self.eat(':')) return null;
        const value = self.skip() orelse return self.stop();
        self.space();
        if (!self.is(',') and !self.is('}')) return self.stop();
        return .{ .key = key[1 .. key.len - 1], .value = value };
    }

    fn stop(self: *Members) ?Member {
        self.broken = true;
        return null;
    }

    fn space(self: *Members) void {
        while (self.at < self.text.len and std.mem.indexOfScalar(u8, " \t\r\n", self.text[self.at]) != null) self.at += 1;
    }

    fn is(self: *const Members, c: u8) bool {
        return self.at < self.text.len and self.text[self.at] == c;
    }

    fn eat(self: *Members, c: u8) bool {
        if (!self.is(c)) {
            self.broken = true;
            return false;
        }
        self.at += 1;
        self.space();
        return true;
    }

    /// Goes to the end of the value here and returns it.
    fn skip(self: *Members) ?[]const u8 {
        const start = self.at;
        var depth: usize = 0;
        while (self.at < self.text.len) : (self.at += 1) {
            switch (self.text[self.at]) {
                '"' => {
                    self.at += 1;
                    while (self.at < self.text.len and self.text[self.at] != '"') : (self.at += 1) {
                        if (self.text[self.at] == '\\') self.at += 1;
                    }
                    if (self.at >= self.text.len) return null;
                    if (depth == 0) {
                        self.at += 1;
                        return self.text[start..self.at];
                    }
                },
                '{', '[' => depth += 1,
                '}', ']' => {
                    if (depth == 0) break;
                    depth -= 1;
                    if (depth == 0) {
                        self.at += 1;
                        return self.text[start..self.at];
                    }
                },
                ',', ' ', '\t', '\n', '\r' => if (depth == 0) break,
                else => {},
            }
        }
        if (self.at == start or self.at >= self.text.len) return null;
        return self.text[start..self.at];
    }
};
