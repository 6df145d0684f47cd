import { CODE_BAD_CONFIG } from "./abi";
import { fail, say, sayByte } from "./message";

/**
 * The operator's settings, a JSON object. Keys are asked for with their default and range. The first
 * thing wrong is kept and fails the load after the constructor, as does a key nobody asked for: a typing
 * mistake must not pass in silence.
 */
export class Config {
  private text: usize;
  private length: i32;
  private asked: string[] = [];
  private wrong: i32 = 0;
  // The member read last: places in the text.
  private keyAt: i32 = 0;
  private keyEnd: i32 = 0;
  private valueAt: i32 = 0;
  private valueEnd: i32 = 0;

  /** @hidden */
  constructor(text: usize, length: i32) {
    this.text = text;
    this.length = length;
    if (text == 0 || length <= 0) {
      const none = String.UTF8.encode("{}");
      this.text = changetype<usize>(none);
      this.length = 2;
    }
  }

  /** A whole number from lowest to highest; without the key it is standard. */
  int(key: string, standard: i64, lowest: i64, highest: i64): i64 {
    if (!this.find(key)) return standard;
    let at = this.valueAt;
    const minus = this.is(at, "-");
    if (minus) at++;
    let good = at < this.valueEnd && this.valueEnd - at <= 18;
    let n: i64 = 0;
    for (; at < this.valueEnd; at++) {
      const digit = load<u8>(this.text + at) - 48;
      good = good && digit <= 9;
      n = n * 10 + digit;
    }
    if (minus) n = -n;
    if (good && n >= lowest && n <= highest) return n;
    this.refuse(key, " must be a whole number from " + lowest.toString() + " to " + highest.toString());
    return standard;
  }

  /** True or false; without the key it is standard. */
  boolean(key: string, standard: bool): bool {
    if (!this.find(key)) return standard;
    if (this.equals(this.valueAt, this.valueEnd, "true")) return true;
    if (this.equals(this.valueAt, this.valueEnd, "false")) return false;
    this.refuse(key, " must be true or false");
    return standard;
  }

  /** Refuses what nobody asked for. 0, or an error code. @hidden */
  end(): i32 {
    let at = 0;
    while (this.wrong == 0 && (at = this.next(at)) > 0) {
      let known = false;
      for (let i = 0; i < this.asked.length; i++) {
        known = known || this.equals(this.keyAt, this.keyEnd, this.asked[i]);
      }
      if (known) continue;
      this.refuse("", "there is no setting ");
      for (let i = this.keyAt; i < this.keyEnd; i++) sayByte(load<u8>(this.text + i));
    }
    return this.wrong;
  }

  private refuse(key: string, why: string): void {
    if (this.wrong != 0) return;
    this.wrong = fail(CODE_BAD_CONFIG, "config: ");
    say(key);
    say(why);
  }

  private find(key: string): bool {
    this.asked.push(key);
    let at = 0;
    while ((at = this.next(at)) > 0) {
      if (this.equals(this.keyAt, this.keyEnd, key)) return true;
    }
    return false;
  }

  private is(at: i32, c: string): bool {
    return at < this.length && load<u8>(this.text + at) == <u8>c.charCodeAt(0);
  }

  private equals(at: i32, end: i32, words: string): bool {
    if (end - at != words.length) return false;
    for (let i = 0; i < words.length; i++) {
      if (load<u8>(this.text + at + i) != words.charCodeAt(i)) return false;
    }
    return true;
  }

  private space(at: i32): i32 {
    while (this.is(at, " ") || this.is(at, "\t") || this.is(at, "\n") || this.is(at, "\r")) at++;
    return at;
  }

  private broken(): i32 {
    this.refuse("settings", " are not a JSON object");
    return 0;
  }

  /** Reads the member behind `at`, which starts at 0; returns where it ends, 0 if there is none. */
  private next(from: i32): i32 {
    let at = this.space(from);
    if (from > 0 && this.is(at, "}")) return 0;
    if (!this.is(at, from > 0 ? "," : "{")) return this.broken();
    at = this.space(at + 1);
    if (from == 0 && this.is(at, "}")) return 0;
    if (!this.is(at, '"')) return this.broken();
    this.keyAt = at + 1;
    at = this.skip(at);
    if (at == 0) return this.broken();
    this.keyEnd = at - 1;
    at = this.space(at);
    if (!this.is(at, ":")) return this.broken();
    this.valueAt = this.space(at + 1);
    this.valueEnd = this.skip(this.valueAt);
    if (this.valueEnd == 0) return this.broken();
    return this.valueEnd;
  }

  /** The end of the value at a place, 0 if there is none. */
  private skip(start: i32): i32 {
    let depth = 0;
    for (let at = start; at < this.length; at++) {
      if (this.is(at, '"')) {
        for (at++; at < this.length && !this.is(at, '"'); at++) {
          if (this.is(at, "\\")) at++;
        }
        if (at >= this.length) return 0;
        if (depth == 0) return at + 1;
      } else if (this.is(at, "{") || this.is(at, "[")) {
        depth++;
      } else if (this.is(at, "}") || this.is(at, "]")) {
        if (depth == 0) return at > start ? at : 0;
        if (--depth == 0) return at + 1;
      } else if (depth == 0 && (this.is(at, ",") || this.space(at) > at)) {
        return at > start ? at : 0;
      }
    }
    return 0;
  }
}
