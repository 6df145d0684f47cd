import { Key } from "./order";

/**
 * Keeps the k first of any number of slots offered: for keys that depend on the time, or on each other.
 * Clear it, offer all, sort, then read at(0) to at(length - 1).
 */
export class Top {
  length: u32 = 0;
  private slots: StaticArray<u32>; // a heap, the last in order at 0, until sorted
  private first: StaticArray<i64>;
  private second: StaticArray<i64>;
  private id: StaticArray<u64>;

  constructor(k: u32) {
    this.slots = new StaticArray<u32>(k + 1); // the last place is for moving
    this.first = new StaticArray<i64>(k + 1);
    this.second = new StaticArray<i64>(k + 1);
    this.id = new StaticArray<u64>(k + 1);
  }

  clear(): void {
    this.length = 0;
  }

  /** The i-th slot in order. */
  at(i: u32): u32 {
    return this.slots[i];
  }

  /** Keeps a slot if it is among the first. */
  offer(key: Key, slot: u32): void {
    const spare = <u32>this.slots.length - 1;
    this.slots[spare] = slot;
    this.first[spare] = key.first;
    this.second[spare] = key.second;
    this.id[spare] = key.id;
    if (this.length == spare) {
      if (spare > 0 && this.before(spare, 0)) this.sink(spare, this.length);
      return;
    }
    let at = this.length++;
    while (at > 0 && this.before((at - 1) / 2, spare)) {
      this.move((at - 1) / 2, at);
      at = (at - 1) / 2;
    }
    this.move(spare, at);
  }

  /** Brings the entries in order, until clear. */
  sort(): void {
    const spare = <u32>this.slots.length - 1;
    for (let end = this.length; end > 1; end--) {
      this.move(end - 1, spare);
      this.move(0, end - 1);
      this.sink(spare, end - 1);
    }
  }

  private before(a: u32, b: u32): bool {
    if (this.first[a] != this.first[b]) return this.first[a] < this.first[b];
    if (this.second[a] != this.second[b]) return this.second[a] < this.second[b];
    return this.id[a] < this.id[b];
  }

  private move(from: u32, to: u32): void {
    this.slots[to] = this.slots[from];
    this.first[to] = this.first[from];
    this.second[to] = this.second[from];
    this.id[to] = this.id[from];
  }

  /** Puts an entry in the first one's place and lets it sink in a heap of n. */
  private sink(entry: u32, n: u32): void {
    let at: u32 = 0;
    for (;;) {
      let child: u32 = 2 * at + 1;
      if (child >= n) break;
      if (child + 1 < n && this.before(child, child + 1)) child++;
      if (!this.before(entry, child)) break;
      this.move(child, at);
      at = child;
    }
    this.move(entry, at);
  }
}
