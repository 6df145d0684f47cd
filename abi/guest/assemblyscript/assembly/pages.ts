import { Header, Record, STATE_RUNNING } from "./abi";

/**
 * Tells by the host's own rule whether a chunk will get its pages: one has to stay free for each request
 * that holds some, and an admission leaves the reserve free too unless nobody holds any. Decodes take
 * theirs first: who wants to be exact takes the pages_needed of each decoding record off `free` before
 * the first question. Make one in the constructor, begin it each step.
 */
export class Pages {
  free: u32 = 0;
  private running: u32 = 0;
  private reserve: u32 = 0;
  private size: u32 = 1;

  begin(h: Header): void {
    this.free = h.free_pages;
    this.running = h.n_running;
    this.reserve = h.reserve_pages;
    this.size = max<u32>(h.page_tokens, 1);
  }

  /** How many new pages the next tokens of a prompt take. */
  needed(r: Record, tokens: u32): u32 {
    const whole = <u64>r.prompt_tokens + r.generated;
    const computed: u64 = whole > r.remaining_prefill ? whole - r.remaining_prefill : 0;
    const size = <u64>this.size;
    const ends = (computed + tokens + size - 1) / size;
    // A waiting request shares full pages only: of a page begun by another it needs a copy.
    const has = (waits(r) ? computed : computed + size - 1) / size;
    return <u32>min<u64>(ends - has, r.pages_needed);
  }

  /** Says whether the chunk fits, and if so takes its pages off. */
  take(r: Record, tokens: u32): bool {
    const need = this.needed(r, tokens);
    let spare = <u64>this.running;
    if (waits(r)) spare = this.running == 0 ? 1 : <u64>this.reserve + 1;
    if ((need > 0 || waits(r)) && <u64>need + spare > this.free) return false;
    this.free -= need;
    if (waits(r)) {
      this.running++;
      this.reserve++;
    }
    return true;
  }
}

function waits(r: Record): bool {
  return (r.state & STATE_RUNNING) == 0;
}
