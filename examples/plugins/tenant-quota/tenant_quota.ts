// tenant-quota: what a tenant was promised it gets at once; what nobody claims is everybody's.
//
// A tenant's quota is a number of requests that may hold pages at once (max_running) and a rate of tokens
// with a burst (tokens_per_s, a token bucket), both times its weight. Requests within the quota run first, by
// arrival. What is left of the step, of the seats and of the pages goes to the others: spare, shared by who
// has the fewest running for its weight. When somebody within its quota finds no seat because others took
// spare ones, the youngest of the tenant that is most over its quota gives its place back.
import {
  ACTION_RUN, CAP_CHUNK_LENGTHS, CAP_LOG, CAP_PREEMPT, CAP_TENANTS, FLAG_RESYNC, STATE_PINNED, STATE_RUNNING,
  Chunks, Config, Key, Order, Out, Pages, Policy, Record, Step, capabilities, granted, live, prefills, register,
} from "pol/assembly";
export { pol_abi_v1, pol_buffer, pol_init, pol_decide, pol_last_error } from "pol/assembly";

const REASON_QUOTA: u16 = 1;
const REASON_SPARE: u16 = 2;
const REASON_GAVE_BACK: u16 = 3;

/** Tenants that are told apart: as many as the host does (SPEC.md, 12). */
const TENANTS: u32 = 1025;
const NOBODY: u32 = 0xffffffff;

function tenantOf(r: Record): u32 {
  return min<u32>(r.tenant, TENANTS - 1);
}

function begun(r: Record): bool {
  return (r.state & STATE_RUNNING) != 0;
}

/** By tenant, those begun first, then by arrival: each tenant's requests are one part of the order. */
function place(r: Record, key: Key): bool {
  key.first = <i64>tenantOf(r);
  key.second = begun(r) ? i64.MIN_VALUE : r.arrival_ns;
  key.id = r.id;
  return prefills(r);
}

/** What was seen last of a slot's request. */
@unmanaged
class Seen {
  id: u64;
  service: u64; // its service_tokens
  since: i64; // when it got its pages, or lost them
  tenant: u32;
  promised: u32; // prompt tokens that were charged ahead
  place: u32; // in the list of those that hold pages
  holds: bool; // pages
  listed: bool; // in this step's answer
}

/** A tenant's accounts. */
@unmanaged
class Share {
  level: i64; // of its bucket, thousandths of a token
  filled: i64; // when the bucket was last filled
  running: u32; // requests that hold pages
  next: u32; // where in the order its next request is
  end: u32; // and where its part ends
  known: bool; // the bucket has been filled before
}

function zeroed(bytes: usize): usize {
  const at = heap.alloc(bytes);
  memory.fill(at, 0, bytes);
  return at;
}

let seenAt: usize = 0;
let shareAt: usize = 0;

function seen(slot: u32): Seen {
  return changetype<Seen>(seenAt + <usize>slot * offsetof<Seen>());
}

function share(tenant: u32): Share {
  return changetype<Share>(shareAt + <usize>tenant * offsetof<Share>());
}

/** A list of numbers, without the checks of an array: all places are below its room. */
class List {
  private base: usize;

  constructor(room: u32) {
    this.base = zeroed(<usize>room << 2);
  }

  get(i: u32): u32 {
    return load<u32>(this.base + (<usize>i << 2));
  }

  set(i: u32, n: u32): void {
    store<u32>(this.base + (<usize>i << 2), n);
  }
}

class TenantQuota extends Policy {
  private order: Order;
  private chunks: Chunks = new Chunks();
  private pages: Pages = new Pages();

  private maxRunning: i64;
  private rate: i64; // tokens a second at weight 1
  private burst: i64; // seconds
  private mayPreempt: bool;
  private minRun: i64;
  private maxPreempts: u32;

  // Tenants in a heap, the next one first; and those whose turn comes with the spare.
  private heap: List = new List(TENANTS);
  private heapLength: u32 = 0;
  private later: List = new List(TENANTS);
  private laterLength: u32 = 0;
  private spare: bool = false; // the heap is in the order of the spare

  private room: u32;
  private holders: List; // slots that hold pages, in no order
  private holdersLength: u32 = 0;
  private chosen: List;
  private chosenLength: u32 = 0;
  private victim: u32 = NOBODY; // who gave its place back in this step
  private tried: bool = false; // a place was looked for in this step
  private seats: u32 = 0;
  private starts: u32 = 0;

  constructor(config: Config, slots: u32) {
    super();
    this.maxRunning = config.int("max_running", 4, 0, 1000000);
    this.rate = config.int("tokens_per_s", 0, 0, 1000000000);
    this.burst = config.int("burst_s", 10, 1, 3600);
    this.minRun = config.int("min_run_ms", 100, 0, 600000) * 1000000;
    this.maxPreempts = <u32>config.int("max_preempts", 2, 0, 1000);
    const back = config.boolean("take_back", true);
    this.mayPreempt = back && (granted() & CAP_PREEMPT) != 0;
    this.order = new Order(slots);
    this.room = slots;
    this.chosen = new List(slots);
    this.holders = new List(slots);
    seenAt = zeroed(slots * offsetof<Seen>());
    shareAt = zeroed(TENANTS * offsetof<Share>());
  }

  private weight(step: Step, tenant: u32): i64 {
    const t = step.tenant(tenant);
    return t === null || t.weight_milli == 0 ? 1000 : min<i64>(t.weight_milli, 1000000);
  }

  /** How many of a tenant's requests may hold pages by its quota. */
  private allowed(step: Step, tenant: u32): i64 {
    if (this.maxRunning == 0) return i64.MAX_VALUE;
    return max<i64>((this.maxRunning * this.weight(step, tenant) + 999) / 1000, 1);
  }

  /** Fills a tenant's bucket up to now. */
  private fill(step: Step, tenant: u32): void {
    const rate = max<i64>(this.rate * this.weight(step, tenant) / 1000, 1); // thousandths of a token a ms
    const now = step.header.now_ns;
    const full = rate * 1000 * this.burst;
    if (!share(tenant).known || now < share(tenant).filled) {
      share(tenant).known = true;
      share(tenant).level = full;
      share(tenant).filled = now;
      return;
    }
    const ms = (now - share(tenant).filled) / 1000000;
    share(tenant).filled += ms * 1000000;
    // After burst_s, and what is owed, any bucket is full: no product overflows.
    const most = (full - share(tenant).level) / rate + 1;
    share(tenant).level = min<i64>(full, share(tenant).level + min<i64>(ms, most) * rate);
  }

  /** A request has what it was promised, or its last token, and is gone. */
  private leave(slot: u32): void {
    const tenant = seen(slot).tenant;
    share(tenant).level -= <i64>max<u32>(seen(slot).promised, 1) * 1000;
    seen(slot).promised = 0;
    if (seen(slot).holds) this.release(slot);
    seen(slot).id = 0;
  }

  private hold(slot: u32): void {
    const s = seen(slot);
    s.holds = true;
    s.place = this.holdersLength;
    this.holders.set(this.holdersLength++, slot);
    share(s.tenant).running++;
  }

  private release(slot: u32): void {
    const s = seen(slot);
    const last = this.holders.get(--this.holdersLength);
    this.holders.set(s.place, last);
    seen(last).place = s.place;
    s.holds = false;
    share(s.tenant).running--;
  }

  private change(step: Step, slot: u32): void {
    const r = step.record(slot);
    const s = seen(slot);
    const here = live(r) && r.id != 0;
    if (s.id != 0 && (!here || s.id != r.id)) this.leave(slot);
    if (!here) return;
    if (s.id == 0) {
      s.id = r.id;
      s.tenant = tenantOf(r);
      s.service = r.service_tokens;
      if (this.rate > 0) this.fill(step, s.tenant);
    }
    if (r.service_tokens > s.service) {
      share(s.tenant).level -= <i64>min<u64>(r.service_tokens - s.service, 1 << 31) * 1000;
    }
    s.service = r.service_tokens;
    if (begun(r) == s.holds) return;
    s.since = step.header.now_ns;
    if (begun(r)) this.hold(slot);
    else this.release(slot);
  }

  /** Follows the changed list. What was charged ahead is given back first: the records tell what came of it. */
  private follow(step: Step): void {
    for (let i: u32 = 0; i < this.chosenLength; i++) {
      const slot = this.chosen.get(i);
      share(seen(slot).tenant).level += <i64>seen(slot).promised * 1000;
    }
    if (step.header.flags & FLAG_RESYNC) {
      for (let slot: u32 = 0; slot < this.room; slot++) {
        if (seen(slot).id != 0 && (slot >= step.slots || !live(step.record(slot)))) this.leave(slot);
      }
    }
    for (let i: u32 = 0; i < step.header.n_changed; i++) this.change(step, step.changed(i));
    for (let i: u32 = 0; i < this.chosenLength; i++) seen(this.chosen.get(i)).promised = 0;
    this.chosenLength = 0;
  }

  /** May the tenant's next request run within the quota? */
  private within(step: Step, tenant: u32, r: Record): bool {
    if (this.rate > 0 && share(tenant).level <= 0) return false;
    return begun(r) || <i64>share(tenant).running < this.allowed(step, tenant);
  }

  /** Does the host let the tenant start one more at all? */
  private mayStart(step: Step, tenant: u32): bool {
    const t = step.tenant(tenant);
    return t === null || t.max_seqs == 0 || share(tenant).running < t.max_seqs;
  }

  private head(step: Step, tenant: u32): Record {
    return step.record(this.order.at(share(tenant).next));
  }

  /** Which of two tenants is next: by arrival of its next request; for the spare, fewest running first. */
  private before(step: Step, a: u32, b: u32): bool {
    if (this.spare) {
      const x = <i64>share(a).running * this.weight(step, b);
      const y = <i64>share(b).running * this.weight(step, a);
      if (x != y) return x < y;
    }
    const r = this.head(step, a), s = this.head(step, b);
    if (r.arrival_ns != s.arrival_ns) return r.arrival_ns < s.arrival_ns;
    return r.id < s.id;
  }

  private sink(step: Step, from: u32): void {
    let at: u32 = from;
    for (;;) {
      let child: u32 = 2 * at + 1;
      if (child >= this.heapLength) return;
      if (child + 1 < this.heapLength && this.before(step, this.heap.get(child + 1), this.heap.get(child))) child++;
      if (!this.before(step, this.heap.get(child), this.heap.get(at))) return;
      const tenant = this.heap.get(at);
      this.heap.set(at, this.heap.get(child));
      this.heap.set(child, tenant);
      at = child;
    }
  }

  private heapify(step: Step): void {
    for (let i = <i32>(this.heapLength / 2) - 1; i >= 0; i--) this.sink(step, i);
  }

  private dropFirst(step: Step): void {
    this.heapLength--;
    this.heap.set(0, this.heap.get(this.heapLength));
    this.sink(step, 0);
  }

  /** Where the part of a tenant ends that begins at a place: doubling steps, then halving ones. */
  private partEnd(step: Step, begin: u32, tenant: u32): u32 {
    const length = this.order.length;
    let stride: u32 = 1;
    while (begin + stride < length && tenantOf(step.record(this.order.at(begin + stride))) == tenant) stride *= 2;
    let low = begin + stride / 2; // is the tenant's
    let high = min<u32>(begin + stride, length); // is not
    while (high - low > 1) {
      const mid = low + (high - low) / 2;
      if (tenantOf(step.record(this.order.at(mid))) == tenant) low = mid;
      else high = mid;
    }
    return high;
  }

  /** Finds each tenant's part of the order. */
  private gather(step: Step): void {
    this.heapLength = this.laterLength = 0;
    this.spare = this.tried = false;
    for (let at: u32 = 0; at < this.order.length;) {
      const tenant = tenantOf(step.record(this.order.at(at)));
      share(tenant).next = at;
      at = this.partEnd(step, at, tenant);
      share(tenant).end = at;
      if (this.rate > 0) this.fill(step, tenant);
      if (this.within(step, tenant, this.head(step, tenant))) this.heap.set(this.heapLength++, tenant);
      else this.later.set(this.laterLength++, tenant);
    }
    this.heapify(step);
  }

  /** Nobody may start any more in this step: leaves the tenants whose next request is begun. */
  private prune(step: Step): void {
    let kept: u32 = 0;
    for (let i: u32 = 0; i < this.heapLength; i++) {
      const tenant = this.heap.get(i);
      if (begun(this.head(step, tenant))) this.heap.set(kept++, tenant);
      else this.later.set(this.laterLength++, tenant);
    }
    this.heapLength = kept;
    this.heapify(step);
  }

  /** Preempts the youngest request of the tenant that is most over its quota. False: there is none. */
  private takeBack(step: Step, out: Out, claimant: u32): bool {
    if (!this.mayPreempt) return false;
    let victim = NOBODY;
    let over: i64 = 0;
    for (let i: u32 = 0; i < this.holdersLength; i++) {
      const slot = this.holders.get(i);
      if (seen(slot).listed) continue;
      const owner = seen(slot).tenant;
      const excess = <i64>share(owner).running - this.allowed(step, owner);
      if (owner == claimant || excess <= 0 || excess < over) continue;
      const r = step.record(slot);
      if ((r.state & STATE_PINNED) != 0 || r.preempt_count >= this.maxPreempts) continue;
      if (step.header.now_ns - seen(slot).since < this.minRun) continue;
      if (excess == over && victim != NOBODY && step.record(victim).id > r.id) continue;
      victim = slot;
      over = excess;
    }
    if (victim == NOBODY || !out.preempt(victim, step.record(victim), REASON_GAVE_BACK)) return false;
    seen(victim).listed = true;
    this.victim = victim;
    share(seen(victim).tenant).running--;
    this.pages.free += step.record(victim).pages_held;
    this.seats++;
    this.starts++;
    return true;
  }

  /** Lists the next request of a tenant; false when the step is full. */
  private run(step: Step, out: Out, tenant: u32, reason: u16): bool {
    const slot = this.order.at(share(tenant).next);
    const r = step.record(slot);
    const tokens = this.chunks.take(r.remaining_prefill);
    if (tokens == 0 || !out.add(slot, r, ACTION_RUN, tokens, reason)) return false;
    seen(slot).listed = true;
    seen(slot).promised = tokens;
    share(tenant).level -= <i64>tokens * 1000;
    this.chosen.set(this.chosenLength++, slot);
    share(tenant).next++;
    if (!begun(r)) {
      share(tenant).running++;
      this.seats--;
      this.starts--;
    }
    return true;
  }

  private fits(r: Record): bool {
    return this.seats > 0 && this.starts > 0 && this.pages.take(r, this.chunks.longest(r.remaining_prefill));
  }

  /** Can a tenant's next request go on within the quota? One that starts may claim a place for it. */
  private can(step: Step, out: Out, tenant: u32): bool {
    const r = this.head(step, tenant);
    if (!this.within(step, tenant, r)) return false;
    if (begun(r)) return true;
    if (!this.mayStart(step, tenant)) return false;
    if (this.fits(r)) return true;
    if (this.tried) return false;
    this.tried = true;
    return this.takeBack(step, out, tenant) && this.fits(r);
  }

  /** Runs what is within the quotas, by arrival; the tenants that cannot go on are left for the spare. */
  private runQuotas(step: Step, out: Out): bool {
    while (this.heapLength > 0) {
      const tenant = this.heap.get(0);
      if (seen(this.order.at(share(tenant).next)).listed) { // it gave its place back in this step
        if (++share(tenant).next == share(tenant).end) this.dropFirst(step);
        else this.sink(step, 0);
        continue;
      }
      if (this.starts == 0 && this.tried && !begun(this.head(step, tenant))) {
        this.prune(step);
        continue;
      }
      if (!this.can(step, out, tenant)) {
        this.later.set(this.laterLength++, tenant);
        this.dropFirst(step);
        continue;
      }
      if (!this.run(step, out, tenant, REASON_QUOTA)) return false;
      if (share(tenant).next == share(tenant).end) this.dropFirst(step);
      else this.sink(step, 0);
    }
    return true;
  }

  /** Shares what is left. */
  private runSpare(step: Step, out: Out): void {
    this.spare = true;
    this.heapLength = 0;
    for (let i: u32 = 0; i < this.laterLength; i++) this.heap.set(this.heapLength++, this.later.get(i));
    this.laterLength = 0;
    if (this.seats == 0 || this.starts == 0) this.prune(step);
    else this.heapify(step);
    while (this.heapLength > 0) {
      const tenant = this.heap.get(0);
      const slot = this.order.at(share(tenant).next);
      if (!begun(step.record(slot))) {
        if (this.seats == 0 || this.starts == 0) {
          this.prune(step);
          continue;
        }
        if (!this.mayStart(step, tenant)) {
          this.dropFirst(step);
          continue;
        }
      }
      if (seen(slot).listed) share(tenant).next++;
      else if (!this.run(step, out, tenant, REASON_SPARE)) return;
      if (share(tenant).next == share(tenant).end) this.dropFirst(step);
      else this.sink(step, 0);
    }
  }

  decide(step: Step, out: Out): i32 {
    const code = this.order.update(step, place);
    if (code < 0) return code;
    const h = step.header;
    this.follow(step);
    this.gather(step);
    this.chunks.begin(h);
    this.pages.begin(h);
    this.seats = h.max_seqs > h.n_running ? h.max_seqs - h.n_running : 0;
    this.starts = h.max_admit;
    if (this.runQuotas(step, out)) this.runSpare(step, out);
    this.settle(step);
    return 0;
  }

  /** Forgets what was counted ahead in this step: the next records tell what came of it. */
  private settle(step: Step): void {
    for (let i: u32 = 0; i < this.chosenLength; i++) {
      const slot = this.chosen.get(i);
      seen(slot).listed = false;
      if (!begun(step.record(slot))) share(seen(slot).tenant).running--;
    }
    if (this.victim == NOBODY) return;
    seen(this.victim).listed = false;
    share(seen(this.victim).tenant).running++;
    this.victim = NOBODY;
  }
}

capabilities(CAP_CHUNK_LENGTHS | CAP_LOG | CAP_PREEMPT | CAP_TENANTS, 0);
register("tenant-quota", "1.0.0", (config: Config, slots: u32): Policy => new TenantQuota(config, slots));
