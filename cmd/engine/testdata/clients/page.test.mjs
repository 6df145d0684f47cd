// The page at /ui in a real browser: a chat streams, its phases and the live queue show, a policy
// swap shows, everything works by keyboard, in light and dark, on a narrow and a wide window.
// Screenshots go to $PAGE_SHOTS, if that is set.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { chromium } from 'playwright-core';

import { start } from './demo.mjs';

const binary = process.env.ENGINE_BINARY;
const browserPath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const skip = existsSync(browserPath) ? false : `no browser at ${browserPath}`;
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const patience = 30_000;
const cleanups = [];
after(async () => {
  for (const c of cleanups.reverse()) await c();
});

// serve starts one instance on a TOML text; {folder} in it is a folder of its own.
async function serve(text, files = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'engine-page-'));
  cleanups.push(() => rm(folder, { recursive: true, force: true }));
  for (const [name, data] of Object.entries(files)) await writeFile(join(folder, name), data);
  const admin = `unix:${join(folder, 'admin.sock')}`;
  const file = join(folder, 'engine.toml');
  const listen = `[listen]\napi = "127.0.0.1:0"\nadmin = "${admin}"\ninternal = ""\n`;
  await writeFile(file, listen + text);
  const child = spawn(binary, ['serve', '-c', file]);
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (d) => (said += d));
  const gone = new Promise((resolve) => child.on('exit', resolve));
  cleanups.push(async () => {
    child.kill('SIGINT');
    await gone;
  });
  for (const deadline = Date.now() + patience; !/^ready\./m.test(said); await sleep(50)) {
    if (Date.now() > deadline || child.exitCode !== null) throw new Error(`no start:\n${said}`);
  }
  return { url: said.match(/http:\/\/[\d.:]+/)[0], admin };
}

// slow keeps requests in the queue until somebody has seen them.
const slow = '[scheduler]\nmax_num_seqs = 2\n';

// open shows the page in a window of its own and watches what it fetches and complains about.
async function open(url, { width, height, colorScheme }) {
  const browser = await chromium.launch({ executablePath: browserPath, headless: true, args: flags });
  cleanups.push(() => browser.close());
  const context = await browser.newContext({ viewport: { width, height }, colorScheme });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const seen = { fetched: [], complaints: [] };
  page.on('request', (r) => seen.fetched.push(r.url()));
  page.on('console', (m) => m.type() === 'error' && seen.complaints.push(m.text()));
  page.on('pageerror', (e) => seen.complaints.push(String(e)));
  await page.goto(`${url}/ui`);
  return { page, seen };
}

async function shot(page, name) {
  if (process.env.PAGE_SHOTS) await page.screenshot({ path: join(process.env.PAGE_SHOTS, name) });
}

const text = (page, selector) => page.locator(selector).innerText();
const until = (page, selector, pattern) =>
  page.waitForFunction(([s, p]) => new RegExp(p).test(document.querySelector(s).textContent),
    [selector, pattern]);
const fits = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth);

test('a chat streams, its phases and a policy swap show', { skip }, async () => {
  const { url, admin } = await serve(slow);
  const { page, seen } = await open(url, { width: 1280, height: 800, colorScheme: 'light' });
  await until(page, '#who', 'embedded');
  await until(page, '#policy', 'builtin:fcfs');

  await page.keyboard.type('Who was in the beginning?'); // The prompt has the focus.
  await page.keyboard.press('Enter');
  await until(page, '#turns li.told p', '\\S');
  await until(page, '#phases', 'whole answer');
  const phases = await text(page, '#phases');
  assert.match(phases, /queue[\s\S]*prefill[\s\S]*1 chunk[\s\S]*decode[\s\S]*tokens/);
  assert.match(phases, /policy\s+builtin:fcfs/);
  assert.match(await page.locator('#bar').getAttribute('aria-label'), /queue .* prefill .* decode/);

  // Others are in the queue, until the page, which looks now and then, has seen them.
  let going = true;
  const others = Array.from({ length: 30 }, async (_, i) => {
    while (going) {
      await fetch(`${url}/v1/completions`, {
        method: 'POST', headers: { 'X-Tenant': `t${i}`, 'X-Request-Id': `other-${i}`, 'X-Deadline-Ms': '600000' },
        body: JSON.stringify({ prompt: 'And the', max_tokens: 400, ignore_eos: true }),
      }).then((r) => r.text());
    }
  });
  await until(page, '#queue tbody', 'other-\\d');
  execFileSync(binary, ['policy', 'load', 'builtin:sjf-aging', '--activate', '--admin', admin]);
  await until(page, '#policy', 'sjf-aging');
  await shot(page, 'wide-light.png');
  // Why the policy placed a request as it did is told in the policy's own words.
  execFileSync(binary, ['policy', 'load', 'builtin:edf-relegate', '--activate', '--admin', admin]);
  await until(page, '#queue tbody', 'can be in time');
  going = false;
  await Promise.all(others);
  await until(page, '#queue tbody', 'no request');
  assert.ok(await fits(page), 'the page is wider than its window');
  assert.deepEqual(seen.complaints, []);
  assert.deepEqual(seen.fetched.filter((u) => !u.startsWith(url) && !u.startsWith('data:')), []);
});

test('everything works by keyboard on a narrow dark window', { skip }, async () => {
  const { url } = await serve('');
  const { page, seen } = await open(url, { width: 390, height: 844, colorScheme: 'dark' });
  await until(page, '#policy', 'fcfs');
  assert.ok(await fits(page), 'the page is wider than its window');
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.match(ground, /rgb\((\d|[1-4]\d), /, 'the ground is not dark');

  await page.keyboard.type('In the beginning');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'send');
  await page.keyboard.press('Space');
  await until(page, '#phases', 'whole answer');
  await shot(page, 'narrow-dark-top.png');
  await page.locator('#queue').scrollIntoViewIfNeeded();
  await shot(page, 'narrow-dark-queue.png');

  // Settings, then a long answer that Escape stops.
  await page.locator('summary').focus();
  await page.keyboard.press('Enter');
  await page.locator('#most').focus();
  await page.keyboard.press('Control+A');
  await page.keyboard.type('450');
  await page.locator('#kind').selectOption('text');
  await page.locator('#ask').focus();
  await page.keyboard.type('And it came to pass');
  await page.evaluate(() => { // The answer may be over before anybody looks.
    const button = document.querySelector('#stop');
    new MutationObserver(() => { globalThis.couldStop ||= !button.disabled; })
      .observe(button, { attributes: true });
  });
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => globalThis.couldStop);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('#stop').disabled);
  await until(page, '#queue tbody', 'no request'); // The server has heard it.
  assert.ok(await fits(page), 'the page is wider than its window with the settings open');
  assert.deepEqual(seen.complaints, []);
});

test('a key is asked for, and tenants see their own', { skip }, async () => {
  const hash = (secret) => createHash('sha256').update(secret).digest('hex');
  const keys = ['acme', 'beta'].map((n) =>
    `[[key]]\nname = "${n}"\ntenant = "${n}"\nhash = "sha256:${hash(`sk-${n}`)}"\n`).join('');
  const { url } = await serve(slow + '[auth]\nmode = "api_keys"\nkeys_file = "keys.toml"\n',
    { 'keys.toml': keys });
  const { page } = await open(url, { width: 900, height: 700, colorScheme: 'light' });
  await until(page, '#who', 'an API key is needed');
  await page.keyboard.type('hello');
  await page.keyboard.press('Enter');
  await until(page, '#fault', 'invalid_api_key');
  await page.locator('summary').click();
  await page.locator('#key').fill('sk-acme');
  await until(page, '#policy', 'fcfs');
  const of = (tenant) => fetch(`${url}/v1/completions`, {
    method: 'POST', headers: { Authorization: `Bearer sk-${tenant}`, 'X-Request-Id': `of-${tenant}` },
    body: JSON.stringify({ prompt: 'And the', max_tokens: 400, ignore_eos: true }),
  }).then((r) => r.text());
  // The page looks now and then: there is always a queue until it has seen it.
  let going = true;
  const all = Array.from({ length: 30 }, async (_, i) => {
    while (going) await of(i % 2 ? 'acme' : 'beta');
  });
  await until(page, '#queue tbody', 'of-acme');
  assert.doesNotMatch(await text(page, '#queue tbody'), /beta/);
  going = false;
  await Promise.all(all);
});

test('through a router the instances show, and the transfer has its time', { skip }, async () => {
  const demo = await start();
  cleanups.push(() => demo.close());
  const url = demo.url.replace('/v1', '');
  const { page, seen } = await open(url, { width: 1000, height: 800, colorScheme: 'dark' });
  await until(page, '#queue tbody', 'prefill');
  await until(page, '#queue tbody', 'decode');
  await until(page, '#policy', 'builtin:fcfs');
  await page.keyboard.type('Tell me of the king and his son');
  await page.keyboard.press('Enter');
  await until(page, '#phases', 'whole answer');
  assert.match(await text(page, '#phases'), /transfer[\s\S]*(KiB|MiB)/);
  await shot(page, 'router-dark.png');
  assert.ok(await fits(page), 'the page is wider than its window');
  assert.deepEqual(seen.complaints, []);
  await demo.idle();
});
