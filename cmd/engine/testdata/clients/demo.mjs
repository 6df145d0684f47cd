// Starts prefill, decode and router as `engine serve --demo-pd` does, and looks at them from outside.

import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const startLimit = 60_000; // milliseconds until the three are ready
const idleLimit = 10_000; // milliseconds until a finished scenario has given everything back

// start returns { url, close, idle }: the API's base URL, and idle(), which waits until no instance
// holds a page for anybody.
export async function start() {
  const binary = process.env.ENGINE_BINARY;
  if (!binary) throw new Error('set ENGINE_BINARY to the engine to test');
  const out = await mkdtemp(join(tmpdir(), 'engine-clients-'));
  const child = spawn(binary, ['serve', '--demo-pd', '--out', out]);
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (d) => (text += d));
  const gone = new Promise((resolve) => child.on('exit', resolve));

  const deadline = Date.now() + startLimit;
  while (!/^ready\./m.test(text)) {
    if (Date.now() > deadline || child.exitCode !== null) {
      child.kill('SIGKILL');
      throw new Error(`the demonstration did not start:\n${text}`);
    }
    await sleep(50);
  }
  const url = text.match(/http:\/\/\S+\/v1/)[0];
  const instances = [...text.matchAll(/internal\s+(\S+:\d+)/g)].map((m) => `http://${m[1]}`);
  return {
    url,
    instances,
    idle: () => idle(instances),
    async close() {
      child.kill('SIGINT');
      await gone;
      await rm(out, { recursive: true, force: true });
    },
  };
}

// idle waits until every page of every instance is free or cached and no request is in any state.
async function idle(instances) {
  const deadline = Date.now() + idleLimit;
  for (;;) {
    const busy = (await Promise.all(instances.map(held))).flat();
    if (busy.length === 0) return;
    if (Date.now() > deadline) throw new Error(`still held:\n${busy.join('\n')}`);
    await sleep(50);
  }
}

// held lists the metrics of an instance that are not zero and must be when it is idle.
async function held(instance) {
  const text = await (await fetch(`${instance}/metrics`)).text();
  const watched =
    /^engine_(kv_pages\{[^}]*state="(pinned|quarantine)"|kv_pages_leaked|requests\{|transfers_inflight)/;
  const lines = text.split('\n').filter((line) => watched.test(line));
  if (lines.length === 0) throw new Error(`${instance}/metrics lacks the page metrics`);
  return lines.filter((line) => Number(line.split(' ').at(-1)) !== 0).map((l) => `${instance} ${l}`);
}
