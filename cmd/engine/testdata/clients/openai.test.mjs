// The npm client openai, unchanged, against three processes. After each scenario every page is free
// or cached, on every instance.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import OpenAI from 'openai';

import { start } from './demo.mjs';

let demo, client, model;

before(async () => {
  demo = await start();
  client = new OpenAI({ baseURL: demo.url, apiKey: 'unused', maxRetries: 0 });
  model = (await client.models.list()).data[0].id;
});
afterEach(() => demo.idle());
after(() => demo.close());

const messages = [{ role: 'user', content: 'Who was in the beginning?' }];

test('lists models', async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  assert.equal(list.data[0].object, 'model');
  assert.equal(list.data[0].owned_by, 'engine');
});

test('chats', async () => {
  const answer = await client.chat.completions.create({
    model, messages, max_tokens: 12, temperature: 0,
  });
  assert.match(answer.id, /^chatcmpl-/);
  const { message, finish_reason } = answer.choices[0];
  assert.equal(message.role, 'assistant');
  assert.ok(['stop', 'length'].includes(finish_reason));
  const usage = answer.usage;
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.ok(usage.completion_tokens <= 12);
});

test('streams with usage, and the same text as without', async () => {
  const request = { model, messages, max_tokens: 12, temperature: 0 };
  const whole = await client.chat.completions.create(request);
  const stream = await client.chat.completions.create({
    ...request, stream: true, stream_options: { include_usage: true },
  });
  let text = '', reason, usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    if (chunk.usage) usage = chunk.usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test('completes prompts of every form', async () => {
  const request = { model, max_tokens: 5, temperature: 0 };
  const one = await client.completions.create({ ...request, prompt: 'In the beginning' });
  const two = await client.completions.create({
    ...request, prompt: ['In the beginning', 'And God said'],
  });
  assert.equal(two.choices.length, 2);
  assert.deepEqual(two.choices.map((c) => c.index), [0, 1]);
  assert.equal(two.choices[0].text, one.choices[0].text);
  const ids = await client.completions.create({ ...request, prompt: [1, 2, 3] });
  assert.equal(ids.usage.prompt_tokens, 3);
});

test('types errors', async () => {
  const create = (request) => client.chat.completions.create({ model, messages, ...request });
  await assert.rejects(create({ model: 'nosuch' }), (e) => {
    assert.ok(e instanceof OpenAI.NotFoundError);
    assert.equal(e.code, 'model_not_found');
    assert.equal(e.type, 'invalid_request_error');
    return true;
  });
  await assert.rejects(create({ temperature: 9 }), (e) => {
    assert.ok(e instanceof OpenAI.BadRequestError);
    assert.equal(e.code, 'invalid_value');
    assert.equal(e.param, 'temperature');
    return true;
  });
  await assert.rejects(create({ tools: [{ type: 'function', function: { name: 'f' } }] }), (e) => {
    assert.equal(e.code, 'unsupported_parameter');
    return true;
  });
  const long = [{ role: 'user', content: 'word '.repeat(5000) }];
  await assert.rejects(create({ messages: long }), (e) => {
    assert.equal(e.code, 'context_length_exceeded');
    assert.match(e.message, /maximum context length is \d+ tokens/);
    return true;
  });
  await assert.rejects(client.get('/nosuch'), (e) => {
    assert.ok(e instanceof OpenAI.NotFoundError);
    assert.equal(e.code, 'unknown_url');
    return true;
  });
});

test('cancels a stream', async () => {
  const stream = await client.completions.create({
    model, prompt: 'In the beginning', max_tokens: 400, temperature: 1, stream: true,
  });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) break; // Leaving the loop aborts the request.
  assert.equal(chunks, 3);
});

test('cancels before the first token', async () => {
  const abort = new AbortController();
  const request = client.completions.create(
    { model, prompt: 'word '.repeat(300), max_tokens: 400 }, { signal: abort.signal },
  );
  setTimeout(() => abort.abort(), 5);
  await assert.rejects(request, OpenAI.APIUserAbortError);
});
