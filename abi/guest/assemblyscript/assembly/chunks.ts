import { Header } from "./abi";

/** Shares a step's prefill tokens among prompts. Make one in the constructor, begin it each step. */
export class Chunks {
  /** Tokens left. */
  left: u32 = 0;
  private max: u32 = 0;
  private multiple: u32 = 1;

  begin(h: Header): void {
    this.left = h.token_budget > h.decode_tokens ? h.token_budget - h.decode_tokens : 0;
    this.max = h.chunk_max;
    this.multiple = max<u32>(h.chunk_align, 1);
  }

  /** The longest chunk for a prompt with this much remaining; 0: nothing fits. */
  longest(remaining: u32): u32 {
    const n = min<u32>(min<u32>(remaining, this.max), this.left);
    return n < remaining ? n - n % this.multiple : n;
  }

  /** Takes the longest chunk. */
  take(remaining: u32): u32 {
    const n = this.longest(remaining);
    this.left -= n;
    return n;
  }
}

/**
 * The longest chunk, at most chunk_max, with which the step should end within targetNS by the engine's
 * own cost figures: fixed + tokens * cost_token + tokens * (context + tokens / 2) * cost_ctx, the
 * running decodes included. context is what the prompt has already: cached, and computed. Without
 * figures it is chunk_max.
 */
export function chunkWithin(h: Header, context: u32, targetNS: i64): u32 {
  if (h.cost_token_ns == 0) return h.chunk_max;
  const token = <f64>h.cost_token_ns;
  const ctx = <f64>h.cost_ctx_ps * 1e-3;
  const left = <f64>targetNS - <f64>h.cost_fixed_us * 1e3 - <f64>h.decode_tokens * token;
  let low: u32 = 0; // fits
  let high = h.chunk_max;
  while (low < high) {
    const n = high - (high - low) / 2;
    const t = <f64>n;
    const cost = t * token + t * (<f64>context + 0.5 * t) * ctx;
    if (cost <= left) low = n;
    else high = n - 1;
  }
  return low;
}
