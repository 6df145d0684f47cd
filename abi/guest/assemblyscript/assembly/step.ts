import { ACTION_PREEMPT_RECOMPUTE, ACTION_RUN, ACTION_SKIP, STATE_DECODING, STATE_LIVE } from "./abi";
import { Decision, Header, Peer, Record, Tenant } from "./abi";

/** The slot holds a request. */
export function live(r: Record): bool {
  return (r.state & STATE_LIVE) != 0;
}

/** There is prompt to compute, so that it can be run with a chunk: waiting and prefilling requests. */
export function prefills(r: Record): bool {
  return (r.state & (STATE_LIVE | STATE_DECODING)) == STATE_LIVE && r.remaining_prefill > 0;
}

/** One step, as the host shows it. */
export class Step {
  header: Header = changetype<Header>(0);
  /** Slots in the table, free ones included. */
  slots: u32 = 0;
  private records: usize = 0;
  private stride: usize = 0;
  private list: usize = 0;

  /** @hidden */
  show(h: Header): void {
    this.header = h;
    this.slots = h.n_slots;
    this.records = h.records_ptr;
    this.stride = h.record_stride;
    this.list = h.changed_ptr;
  }

  /** The record of a slot. */
  record(slot: u32): Record {
    if (slot >= this.slots) unreachable();
    return changetype<Record>(this.records + <usize>slot * this.stride);
  }

  /** The tenant that a record names; null where the host shows none (capability tenants). */
  tenant(index: u32): Tenant | null {
    if (index >= this.header.n_tenants) return null;
    return changetype<Tenant>(<usize>this.header.tenants_ptr + <usize>index * offsetof<Tenant>());
  }

  /** The destination that a record names; null for peer 0, and where the host shows none (capability peers). */
  peer(index: u32): Peer | null {
    if (index == 0 || index > this.header.n_peers) return null;
    return changetype<Peer>(<usize>this.header.peers_ptr + <usize>(index - 1) * offsetof<Peer>());
  }

  /** The i-th slot that was added, changed or freed since the last step, of header.n_changed; ascending. */
  changed(i: u32): u32 {
    return load<u32>(this.list + (<usize>i << 2));
  }
}

/** The answer, most important decision first. */
export class Out {
  length: u32 = 0;
  private room: u32 = 0;
  private at: usize = 0;

  /** @hidden */
  begin(h: Header): void {
    this.length = 0;
    this.room = h.decisions_cap;
    this.at = h.decisions_ptr;
  }

  /** Adds a decision; false when the list is full. */
  add(slot: u32, r: Record, action: u8, tokens: u32, reason: u16): bool {
    if (this.length >= this.room) return false;
    const d = changetype<Decision>(this.at + <usize>this.length * offsetof<Decision>());
    this.length++;
    d.slot = slot;
    d.tokens = tokens;
    d.id_low = <u32>r.id;
    d.action = action;
    d.reserved = 0;
    d.reason = reason;
    return true;
  }

  /** Computes that many tokens of a request's prompt, or TOKENS_AUTO. */
  run(slot: u32, r: Record, tokens: u32): bool {
    return this.add(slot, r, ACTION_RUN, tokens, 0);
  }

  /** Leaves a request out of this step, a decoding one too. */
  skip(slot: u32, r: Record): bool {
    return this.add(slot, r, ACTION_SKIP, 0, 0);
  }

  /**
   * Takes the pages of a running request that is not pinned; it is computed again later. Only with
   * CAP_PREEMPT, and before the runs that it makes room for.
   */
  preempt(slot: u32, r: Record, reason: u16): bool {
    return this.add(slot, r, ACTION_PREEMPT_RECOMPUTE, 0, reason);
  }
}
