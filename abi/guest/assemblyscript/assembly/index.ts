/**
 * Write a scheduling policy in AssemblyScript: memory is taken once, decide allocates nothing.
 *
 *   import { Config, Out, Policy, Step, register } from "pol/assembly";
 *   export { pol_abi_v1, pol_buffer, pol_init, pol_decide, pol_last_error } from "pol/assembly";
 *
 *   class Mine extends Policy {
 *     constructor(config: Config, slots: u32) { super(); … }
 *     decide(step: Step, out: Out): i32 { …; return 0; }
 *   }
 *
 *   register("mine", "1.0.0", (config, slots) => new Mine(config, slots));
 *
 * What the fields mean, and what the host checks, stands in SPEC.md. Build with asc 0.28:
 * --runtime stub --exportStart _initialize. The stub runtime never frees: allocate in the
 * constructor only.
 */
import { CODE_BAD_ARGUMENT, CODE_UNSUPPORTED, DESC_SELECTS, DESC_SETS_CHUNKS, DESC_WANTS_CHANGED } from "./abi";
import { CAP_CHUNK_LENGTHS, CAP_LOG, MAGIC, MINOR, checkLayout } from "./abi";
import { BUFFER_CONFIG, BUFFER_EVENTS, BUFFER_PEERS, BUFFER_RECORDS, BUFFER_STATE } from "./abi";
import { Decision, Descriptor, Event, Header, Record } from "./abi";
import { Config } from "./config";
import { Out, Step } from "./step";
import { fail, messageAt, messageLength } from "./message";

export * from "./abi";
export { Chunks, chunkWithin } from "./chunks";
export { Config } from "./config";
export { Counters } from "./counters";
export { fail } from "./message";
export { Key, Order } from "./order";
export { Pages } from "./pages";
export { Out, Step, live, prefills } from "./step";
export { Top } from "./top";
export { granted, log, logLevel } from "./host";

/** A scheduling policy. */
export abstract class Policy {
  /** Decides one step, the most important decision first. 0, or an error code: return fail(code, "why"). */
  abstract decide(step: Step, out: Out): i32;

  /**
   * Hears what became of requests since the last step, before the next is decided: the i-th of n events is
   * eventAt(i). Of a module that exports pol_observe, with CAP_EVENTS. 0, or an error code.
   */
  observe(n: u32): i32 {
    return 0;
  }

  /**
   * Writes the state for the next copy at a swap, at most room bytes at to, and returns how many bytes it
   * has. When they do not fit nothing needs to be written: it is asked again with more room. Of a module
   * that exports pol_save and pol_load, with CAP_STATE and stateVersion.
   */
  save(to: usize, room: u32): i32 {
    return fail(CODE_UNSUPPORTED, "the policy keeps no state");
  }

  /** Takes up what an earlier copy saved, in that version, before the first step. 0, or an error code. */
  load(from: usize, length: u32, version: u32): i32 {
    return fail(CODE_UNSUPPORTED, "the policy keeps no state");
  }
}

let policyName = String.UTF8.encode("");
let policyVersion = String.UTF8.encode("");
let policyCaps: u64 = CAP_CHUNK_LENGTHS | CAP_LOG;
let policyRequired: u64 = 0;
let policyState: u16 = 0;
let create: ((config: Config, slots: u32) => Policy) | null = null;
let running: Policy | null = null;
const step = new Step();
const out = new Out();
const regionAt = new StaticArray<usize>(BUFFER_PEERS + 1);
const regionSize = new StaticArray<u32>(BUFFER_PEERS + 1);
const descriptor = heap.alloc(offsetof<Descriptor>());

/** Names the capabilities that the policy uses when it gets them, and those it must not be loaded without. */
export function capabilities(optional: u64, required: u64): void {
  policyCaps = optional;
  policyRequired = required;
}

/** Names the version of what save writes, from 1. */
export function stateVersion(version: u16): void {
  policyState = version;
}

/** The i-th event of those that observe is told of. */
export function eventAt(i: u32): Event {
  return changetype<Event>(regionAt[BUFFER_EVENTS] + <usize>i * offsetof<Event>());
}

/** The one registration line: names the policy and how it is made. */
export function register(name: string, version: string, make: (config: Config, slots: u32) => Policy): void {
  policyName = String.UTF8.encode(name);
  policyVersion = String.UTF8.encode(version);
  create = make;
}

/** @hidden */
export function pol_abi_v1(): usize {
  checkLayout();
  memory.fill(descriptor, 0, offsetof<Descriptor>());
  const d = changetype<Descriptor>(descriptor);
  d.magic = MAGIC;
  d.size = <u16>offsetof<Descriptor>();
  d.minor = MINOR;
  d.flags = DESC_WANTS_CHANGED | DESC_SELECTS | DESC_SETS_CHUNKS;
  d.caps_optional = policyCaps;
  d.caps_required = policyRequired;
  d.state_version = policyState;
  d.name_ptr = <u32>changetype<usize>(policyName);
  d.name_len = <u32>policyName.byteLength;
  d.version_ptr = <u32>changetype<usize>(policyVersion);
  d.version_len = <u32>policyVersion.byteLength;
  d.record_bytes = <u32>offsetof<Record>();
  d.header_bytes = <u32>offsetof<Header>();
  return descriptor;
}

/** @hidden */
export function pol_buffer(kind: i32, bytes: u32): usize {
  if (<u32>kind > <u32>BUFFER_PEERS || bytes > 1 << 30) return 0;
  if (regionAt[kind] == 0 || bytes > regionSize[kind]) {
    // Cut by hand: what the allocator gives is not always a multiple of 16.
    regionAt[kind] = (heap.alloc(bytes + 32) + 15) & ~15;
    regionSize[kind] = bytes;
  }
  return regionAt[kind];
}

/** @hidden */
export function pol_init(length: i32): i32 {
  const config = new Config(regionAt[BUFFER_CONFIG], length);
  const make = create;
  if (make == null) return fail(CODE_BAD_ARGUMENT, "no policy is registered");
  running = make(config, regionSize[BUFFER_RECORDS] / <u32>offsetof<Record>());
  return config.end();
}

/** @hidden */
export function pol_decide(header: usize): i32 {
  const h = changetype<Header>(header);
  if (
    h.magic != MAGIC || h.header_size < offsetof<Header>() || h.record_stride < offsetof<Record>() ||
    h.decision_stride != offsetof<Decision>()
  ) {
    return fail(CODE_BAD_ARGUMENT, "the step header is not of ABI version 1");
  }
  step.show(h);
  out.begin(h);
  const code = running!.decide(step, out);
  return code < 0 ? code : <i32>out.length;
}

/** @hidden */
export function pol_observe(n: u32): i32 {
  if (n > regionSize[BUFFER_EVENTS] / <u32>offsetof<Event>()) {
    return fail(CODE_BAD_ARGUMENT, "more events than fit their region");
  }
  return running!.observe(n);
}

/** @hidden */
export function pol_save(room: u32): i32 {
  return running!.save(regionAt[BUFFER_STATE], min(room, regionSize[BUFFER_STATE]));
}

/** @hidden */
export function pol_load(length: u32, version: u32): i32 {
  return running!.load(regionAt[BUFFER_STATE], min(length, regionSize[BUFFER_STATE]), version);
}

/** @hidden */
export function pol_last_error(): u64 {
  return (<u64>messageAt << 32) | messageLength();
}
