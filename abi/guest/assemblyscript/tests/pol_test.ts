// Tests of the helpers that need no host: run() returns the line of the first thing that is wrong, 0 if
// nothing is. Compiled with asc and run under node by the tests of ../../../gen.
import { Header, Pages, Peer, Record, STATE_LIVE, STATE_RUNNING, Step, Tenant } from "pol/assembly";

let wrong: i32 = 0;

function expect(ok: bool, place: i32): void {
  if (!ok && wrong == 0) wrong = place;
}

function zeroed(size: usize): usize {
  const at = heap.alloc(size);
  memory.fill(at, 0, size);
  return at;
}

function pages(): void {
  const h = changetype<Header>(zeroed(offsetof<Header>()));
  h.page_tokens = 16;
  h.free_pages = 10;
  h.n_running = 2;
  h.reserve_pages = 3;
  const p = new Pages();
  p.begin(h);
  const waiting = changetype<Record>(zeroed(offsetof<Record>()));
  waiting.state = STATE_LIVE;
  waiting.prompt_tokens = 100;
  waiting.cached_tokens = 24;
  waiting.remaining_prefill = 76;
  waiting.pages_needed = 6;
  expect(p.needed(waiting, 8) == 1, 1);
  expect(p.needed(waiting, 9) == 2, 2);
  expect(p.needed(waiting, 76) == 6, 3);
  expect(p.take(waiting, 76) && p.free == 4, 4);
  expect(!p.take(waiting, 8) && p.free == 4, 5); // the reserve stays free
  const running = changetype<Record>(zeroed(offsetof<Record>()));
  running.state = STATE_LIVE | STATE_RUNNING;
  running.prompt_tokens = 60;
  running.generated = 4;
  running.remaining_prefill = 34;
  running.pages_needed = 2;
  expect(p.needed(running, 2) == 0 && p.needed(running, 3) == 1, 6);
  expect(!p.take(running, 34), 7);
  expect(p.take(running, 18) && p.free == 3, 8);
  expect(p.take(running, 2) && p.free == 3, 9); // what needs none always fits
  h.n_running = 0;
  h.free_pages = 7;
  p.begin(h);
  expect(p.take(waiting, 76), 10); // nobody else could free the reserve
}

function tables(): void {
  const h = changetype<Header>(zeroed(offsetof<Header>()));
  const step = new Step();
  step.show(h);
  expect(step.tenant(0) === null && step.peer(1) === null, 20);
  h.n_tenants = 2;
  h.tenants_ptr = <u32>zeroed(2 * offsetof<Tenant>());
  h.n_peers = 1;
  h.peers_ptr = <u32>zeroed(offsetof<Peer>());
  expect(step.tenant(1) !== null && step.tenant(2) === null, 21);
  expect(step.peer(1) !== null && step.peer(0) === null && step.peer(2) === null, 22);
}

export function run(): i32 {
  pages();
  tables();
  return wrong;
}
