// The npm package ai (Vercel's AI SDK) with @ai-sdk/openai-compatible, unchanged, against three
// processes. After each scenario every page is free or cached, on every instance.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  APICallError, generateObject, generateText, jsonSchema, streamObject, streamText, tool,
} from 'ai';

import { start } from './demo.mjs';

let demo, provider, model;

before(async () => {
  demo = await start();
  provider = createOpenAICompatible({
    name: 'engine', baseURL: demo.url, apiKey: 'unused',
    includeUsage: true, supportsStructuredOutputs: true,
  });
  model = provider('embedded');
});
afterEach(() => demo.idle());
after(() => demo.close());

const prompt = 'Who was in the beginning?';
const ask = { prompt, maxRetries: 0, maxOutputTokens: 12, temperature: 0 };

const schema = jsonSchema({
  type: 'object', additionalProperties: false, required: ['city', 'days'],
  properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
});
const tools = { get_weather: tool({ description: 'The weather', inputSchema: schema }) };
const judge = ({ city, days }) => {
  assert.ok(['Rome', 'Oslo'].includes(city) && Number.isInteger(days) && days >= 1 && days <= 9);
};

// added checks that a usage is whole.
const added = (usage) => {
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
};

test('generates text, and streams the same', async () => {
  const whole = await generateText({ ...ask, model });
  assert.ok(whole.text.length > 0);
  assert.ok(['stop', 'length'].includes(whole.finishReason));
  added(whole.usage);

  // Tokens that come while the machine is busy with others share a piece: all of a short answer may.
  let stream, pieces = 0;
  for (let n = 0; n < 50 && pieces < 2; n++) {
    stream = streamText({ ...ask, model });
    let text = '';
    pieces = 0;
    for await (const piece of stream.textStream) {
      text += piece;
      pieces++;
    }
    assert.equal(text, whole.text);
  }
  assert.ok(pieces > 1);
  assert.equal(await stream.finishReason, whole.finishReason);
  const usage = await stream.usage;
  assert.equal(usage.inputTokens, whole.usage.inputTokens);
  assert.equal(usage.outputTokens, whole.usage.outputTokens);
});

test('takes a conversation with a system message', async () => {
  const answer = await generateText({
    model, maxRetries: 0, maxOutputTokens: 8, system: 'Be brief.',
    messages: [
      { role: 'user', content: [{ type: 'text', text: prompt }] },
      { role: 'assistant', content: 'God.' }, { role: 'user', content: 'And then?' },
    ],
  });
  added(answer.usage);
});

test('calls a tool, and goes on after it', async () => {
  const request = { model, prompt, tools, maxRetries: 0, maxOutputTokens: 120, temperature: 1.2 };
  for (const toolChoice of ['required', { type: 'tool', toolName: 'get_weather' }]) {
    const first = await generateText({ ...request, seed: 3, toolChoice });
    assert.equal(first.finishReason, 'tool-calls');
    assert.ok(first.toolCalls.length > 0);
    for (const call of first.toolCalls) {
      assert.equal(call.toolName, 'get_weather');
      judge(call.input);
    }
  }
  const once = { get_weather: tool({ description: 'The weather', inputSchema: schema,
    execute: async () => '20 degrees' }) };
  const whole = await generateText({
    ...request, tools: once, seed: 3, stopWhen: ({ steps }) => steps.length === 2,
    prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? 'required' : 'none' }),
  });
  assert.equal(whole.steps.length, 2);
  assert.equal(whole.steps[1].toolCalls.length, 0);
});

test('streams a tool call', async () => {
  const stream = streamText({
    model, prompt, tools, toolChoice: 'required', maxRetries: 0, maxOutputTokens: 120, seed: 3,
  });
  const calls = await stream.toolCalls;
  assert.ok(calls.length > 0);
  for (const call of calls) {
    assert.equal(call.toolName, 'get_weather');
    judge(call.input);
  }
  assert.equal(await stream.finishReason, 'tool-calls');
  added(await stream.usage);
});

test('keeps to a schema, whole and streamed', async () => {
  const request = { model, prompt, schema, maxRetries: 0, maxOutputTokens: 60, temperature: 1.5 };
  for (let seed = 0; seed < 3; seed++) {
    judge((await generateObject({ ...request, seed })).object);
    const stream = streamObject({ ...request, seed });
    let last;
    for await (const part of stream.partialObjectStream) last = part;
    judge(await stream.object);
    assert.deepEqual(last, await stream.object);
  }
});

test('types errors', async () => {
  const refused = (request, check) =>
    assert.rejects(generateText({ ...ask, model, ...request }), (e) => {
      assert.ok(APICallError.isInstance(e), String(e));
      assert.equal(e.isRetryable, false);
      check(e, e.data.error);
      return true;
    });
  await refused({ model: provider('nosuch') }, (e, said) => {
    assert.equal(e.statusCode, 404);
    assert.equal(said.code, 'model_not_found');
    assert.equal(e.message, said.message);
  });
  await refused({ temperature: 9 }, (e, said) => {
    assert.equal(e.statusCode, 400);
    assert.equal(said.param, 'temperature');
  });
  await refused({ prompt: 'word '.repeat(5000) }, (e, said) => {
    assert.equal(said.code, 'context_length_exceeded');
  });
});

// alone runs one instance on a TOML text and gives its model to use.
async function alone(settings, use) {
  const folder = await mkdtemp(join(tmpdir(), 'engine-ai-'));
  const file = join(folder, 'engine.toml');
  const admin = `unix:${join(folder, 'a.sock')}`;
  const listen = `[listen]\napi = "127.0.0.1:0"\nadmin = "${admin}"\ninternal = ""\n`;
  await writeFile(file, listen + settings);
  const child = spawn(process.env.ENGINE_BINARY, ['serve', '-c', file]);
  const gone = new Promise((resolve) => child.on('exit', resolve));
  try {
    let said = '';
    const ready = new Promise((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (d) => /^ready\./m.test((said += d)) && resolve());
      }
    });
    await Promise.race([ready, gone]);
    assert.equal(child.exitCode, null, said);
    const baseURL = `${said.match(/http:\/\/[\d.:]+/)[0]}/v1`;
    await use(createOpenAICompatible({ name: 'engine', baseURL })('embedded'));
  } finally {
    child.kill('SIGINT');
    await gone;
    await rm(folder, { recursive: true, force: true });
  }
}

test('may try again after 429', () =>
  alone('[limits]\nrequests_per_minute = 1\n', async (model) => {
    await generateText({ ...ask, model });
    await assert.rejects(generateText({ ...ask, model }), (e) => {
      assert.ok(APICallError.isInstance(e), String(e));
      assert.equal(e.statusCode, 429);
      assert.equal(e.isRetryable, true);
      assert.equal(e.data.error.code, 'rate_limit_exceeded');
      assert.ok(Number(e.responseHeaders['retry-after']) > 0);
      return true;
    });
  }));

// Where the time limit falls depends on the machine: it is moved until it falls between the first
// text and the end.
test('hears of an error within a stream', async () => {
  for (const limit of [40, 80, 160, 320, 20, 40, 80, 10, 640]) {
    let pieces = 0, reason;
    const faults = [];
    await alone(`[api]\nrequest_timeout = "${limit}ms"\n`, async (model) => {
      const stream = streamText({
        ...ask, model, maxOutputTokens: 450, onError() {},
        providerOptions: { engine: { ignore_eos: true } },
      });
      for await (const part of stream.fullStream) {
        if (part.type === 'text-delta') pieces++;
        if (part.type === 'error') faults.push(part.error);
      }
      reason = await stream.finishReason.catch(() => 'nothing');
    });
    if (pieces === 0 || faults.length === 0) continue;
    assert.equal(faults.length, 1);
    assert.match(faults[0].message, /api\.request_timeout/);
    assert.equal(reason, 'error');
    return;
  }
  assert.fail('no time limit fell into the middle of a stream');
});

test('cancels a stream', { timeout: 60_000 }, async () => {
  const abort = new AbortController();
  const stream = streamText({
    ...ask, model, maxOutputTokens: 400, temperature: 1, abortSignal: abort.signal,
    providerOptions: { engine: { ignore_eos: true } }, // It must not end by itself before.
  });
  let aborted = false;
  for await (const part of stream.fullStream) {
    if (part.type === 'text-delta') abort.abort();
    if (part.type === 'abort') aborted = true;
  }
  assert.ok(aborted);
});
