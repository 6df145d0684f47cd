import { CODE_BAD_ARGUMENT, FLAG_RESYNC, Record } from "./abi";
import { fail } from "./message";
import { Step } from "./step";

/** Orders requests: by first, then second, then id, all ascending. Ids are unique, so no two are equal. */
export class Key {
  first: i64 = 0;
  second: i64 = 0;
  id: u64 = 0;
}

/**
 * Up to this many moves, and one more for each 128 slots in the order, are done one by one: each costs a
 * search and half a copy of the list. More are sorted and merged in a walk along all of it.
 */
const FEW: u32 = 16;

/**
 * Keeps slots in order from step to step: a step costs what changed, not what waits. Read at(0) to
 * at(length - 1). Keys must depend on the record alone, not on the time; a request that ages at the same
 * rate as all others keeps its place, so put the arrival into the key.
 */
export class Order {
  length: u32 = 0;
  private slots: StaticArray<u32>; // in order
  private moved: StaticArray<u32>; // slots that leave, enter or change place
  private scratch: StaticArray<u32>; // for sorting
  private inside: StaticArray<bool>; // by slot
  private first: StaticArray<i64>; // keys, by slot, of those that are in
  private second: StaticArray<i64>;
  private id: StaticArray<u64>;
  private key: Key = new Key();

  constructor(slots: u32) {
    this.slots = new StaticArray<u32>(slots);
    this.moved = new StaticArray<u32>(slots);
    this.scratch = new StaticArray<u32>(slots);
    this.inside = new StaticArray<bool>(slots);
    this.first = new StaticArray<i64>(slots);
    this.second = new StaticArray<i64>(slots);
    this.id = new StaticArray<u64>(slots);
  }

  /** The i-th slot in order. */
  at(i: u32): u32 {
    return unchecked(this.slots[i]);
  }

  /**
   * Follows the changed list; once a step, first thing. keyOf writes a record's place into the key, and
   * returns false when it does not belong into the order. 0, or an error code.
   */
  update(step: Step, keyOf: (r: Record, key: Key) => bool): i32 {
    if (step.header.flags & FLAG_RESYNC) {
      memory.fill(changetype<usize>(this.inside), 0, this.inside.length);
      this.length = 0;
    }
    const key = this.key;
    const changed = step.header.n_changed;
    let n: u32 = 0;
    for (let i: u32 = 0; i < changed; i++) {
      const slot = step.changed(i);
      if (slot >= <u32>this.inside.length || n >= <u32>this.moved.length) {
        return fail(CODE_BAD_ARGUMENT, "the changed list names a slot beyond the table");
      }
      const inside = keyOf(step.record(slot), key);
      if (inside ? this.same(slot, key) : !unchecked(this.inside[slot])) continue;
      unchecked(this.moved[n++] = slot);
    }
    if (n <= FEW + this.length / 128) {
      for (let i: u32 = 0; i < n; i++) {
        const slot = this.moved[i];
        this.one(slot, keyOf(step.record(slot), key));
      }
      return 0;
    }
    for (let i: u32 = 0; i < n; i++) unchecked(this.inside[unchecked(this.moved[i])] = false);
    this.sweep();
    let added: u32 = 0;
    for (let i: u32 = 0; i < n; i++) {
      const slot = unchecked(this.moved[i]);
      if (!keyOf(step.record(slot), key)) continue;
      this.put(slot);
      unchecked(this.moved[added++] = slot);
    }
    this.sort(added);
    this.merge(added);
    return 0;
  }

  private same(slot: u32, key: Key): bool {
    return unchecked(this.inside[slot]) && unchecked(this.first[slot]) == key.first &&
      unchecked(this.second[slot]) == key.second && unchecked(this.id[slot]) == key.id;
  }

  private put(slot: u32): void {
    unchecked(this.inside[slot] = true);
    unchecked(this.first[slot] = this.key.first);
    unchecked(this.second[slot] = this.key.second);
    unchecked(this.id[slot] = this.key.id);
  }

  /** Written without branches: fuel is charged for both sides of one. */
  // @ts-ignore: decorator
  @inline
  private before(a: u32, b: u32): bool {
    const x = unchecked(this.first[a]), y = unchecked(this.first[b]);
    const s = unchecked(this.second[a]), t = unchecked(this.second[b]);
    const ids = i32(unchecked(this.id[a]) < unchecked(this.id[b]));
    return bool(i32(x < y) | (i32(x == y) & (i32(s < t) | (i32(s == t) & ids))));
  }

  /** The first place whose key is not before this one: where a part of the order begins. */
  find(key: Key): u32 {
    let low: u32 = 0;
    let high = this.length;
    while (low < high) {
      const mid = low + (high - low) / 2;
      const slot = unchecked(this.slots[mid]);
      const f = unchecked(this.first[slot]), s = unchecked(this.second[slot]);
      const ids = i32(unchecked(this.id[slot]) < key.id);
      const seconds = i32(s < key.second) | (i32(s == key.second) & ids);
      if (i32(f < key.first) | (i32(f == key.first) & seconds)) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** The first place whose slot is not before this one. */
  private place(slot: u32): u32 {
    let low: u32 = 0;
    let high = this.length;
    while (low < high) {
      const mid = low + (high - low) / 2;
      if (this.before(unchecked(this.slots[mid]), slot)) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** Gives one slot its new place, from this.key. */
  private one(slot: u32, inside: bool): void {
    const base = changetype<usize>(this.slots);
    if (this.inside[slot]) {
      const at = this.place(slot);
      this.length--;
      memory.copy(base + (at << 2), base + ((at + 1) << 2), (this.length - at) << 2);
    }
    this.inside[slot] = false;
    if (!inside) return;
    this.put(slot);
    const at = this.place(slot);
    memory.copy(base + ((at + 1) << 2), base + (at << 2), (this.length - at) << 2);
    this.slots[at] = slot;
    this.length++;
  }

  /** Drops the slots that are not in. */
  private sweep(): void {
    const end = changetype<usize>(this.slots) + (<usize>this.length << 2);
    const inside = changetype<usize>(this.inside);
    let to = changetype<usize>(this.slots);
    for (let from = to; from < end; from += 4) {
      const slot = load<u32>(from);
      store<u32>(to, slot);
      to += <usize>load<u8>(inside + slot) << 2;
    }
    this.length = <u32>((to - changetype<usize>(this.slots)) >> 2);
  }

  /** Sorts the first n of moved: runs of 8 by insertion, then merged from one place to the other. */
  private sort(n: u32): void {
    const moved = this.moved;
    for (let i: u32 = 1; i < n; i++) {
      const slot = unchecked(moved[i]);
      const start = i & ~7;
      let j = i;
      for (; j > start && this.before(slot, unchecked(moved[j - 1])); j--) unchecked(moved[j] = moved[j - 1]);
      unchecked(moved[j] = slot);
    }
    let from = changetype<usize>(this.moved);
    let to = changetype<usize>(this.scratch);
    for (let width: u32 = 8; width < n; width <<= 1) {
      for (let at: u32 = 0; at < n; at += 2 * width) {
        const mid = min<u32>(at + width, n);
        this.weave(from + (at << 2), from + (mid << 2), from + (min<u32>(mid + width, n) << 2), to + (at << 2));
      }
      const swap = from;
      from = to;
      to = swap;
    }
    if (from != changetype<usize>(this.moved)) memory.copy(to, from, n << 2);
  }

  /** Merges the slots from a to mid and from mid to end. */
  private weave(a: usize, mid: usize, end: usize, to: usize): void {
    let b = mid;
    // Else they are in order as they stand.
    const apart = b < end && this.before(load<u32>(b), load<u32>(mid - 4));
    while (apart && a < mid && b < end) {
      const x = load<u32>(a), y = load<u32>(b);
      const second = this.before(y, x);
      store<u32>(to, second ? y : x);
      to += 4;
      a += <usize>!second << 2;
      b += <usize>second << 2;
    }
    memory.copy(to, a, mid - a);
    memory.copy(to + (mid - a), b, end - b);
  }

  /** Merges the first n of moved into the order, from the back. */
  private merge(n: u32): void {
    const slots = changetype<usize>(this.slots);
    const moved = changetype<usize>(this.moved);
    let kept = slots + (<usize>this.length << 2); // ends of what is not merged yet
    let added = moved + (<usize>n << 2);
    this.length += n;
    let to = slots + (<usize>this.length << 2);
    while (added > moved && kept > slots) {
      to -= 4;
      const a = load<u32>(added - 4), k = load<u32>(kept - 4);
      const keep = this.before(a, k);
      store<u32>(to, keep ? k : a);
      kept -= <usize>keep << 2;
      added -= <usize>!keep << 2;
    }
    if (added > moved) memory.copy(slots, moved, added - moved);
  }
}
