// Counts events: each decision's reason is how many there were, and the count outlives a swap.
import {
  ACTION_RUN, CAP_CHUNK_LENGTHS, CAP_EVENTS, CAP_LOG, CAP_STATE, CODE_BAD_ARGUMENT, CODE_STATE_VERSION,
  Config, Out, Policy, Step, TOKENS_AUTO, capabilities, eventAt, fail, prefills, register, stateVersion,
} from "pol/assembly";
export {
  pol_abi_v1, pol_buffer, pol_init, pol_decide, pol_observe, pol_save, pol_load, pol_last_error,
} from "pol/assembly";

const STATE_VERSION: u16 = 1;

class Mine extends Policy {
  private seen: u64 = 0;

  constructor(config: Config, slots: u32) {
    super();
  }

  decide(step: Step, out: Out): i32 {
    if (step.slots > 0 && prefills(step.record(0))) {
      out.add(0, step.record(0), ACTION_RUN, TOKENS_AUTO, <u16>this.seen);
    }
    return 0;
  }

  observe(n: u32): i32 {
    for (let i: u32 = 0; i < n; i++) {
      if (eventAt(i).extra == 77) unreachable();
      if (eventAt(i).extra == 78) return fail(CODE_BAD_ARGUMENT, "it was 78");
    }
    this.seen += n;
    return 0;
  }

  save(to: usize, room: u32): i32 {
    if (room >= 8) store<u64>(to, this.seen);
    return 8;
  }

  load(from: usize, length: u32, version: u32): i32 {
    if (version != STATE_VERSION) return fail(CODE_STATE_VERSION, "not this version");
    if (length != 8) return fail(CODE_BAD_ARGUMENT, "not eight bytes");
    this.seen = load<u64>(from);
    return 0;
  }
}

capabilities(CAP_CHUNK_LENGTHS | CAP_LOG | CAP_EVENTS | CAP_STATE, 0);
stateVersion(STATE_VERSION);
register("mine", "1.0.0", (config, slots) => new Mine(config, slots));
