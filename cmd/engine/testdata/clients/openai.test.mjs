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

const format = (schema) => ({ type: 'json_schema', json_schema: { name: 'f', strict: true, schema } });
const weather = {
  type: 'object', additionalProperties: false, required: ['city', 'days'],
  properties: { city: { enum: ['Rome', 'Oslo'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
};
const tools = [
  { type: 'function', function: { name: 'get_weather', description: 'The weather', parameters: weather } },
];
const judge = (text) => {
  const { city, days } = JSON.parse(text);
  assert.ok(['Rome', 'Oslo'].includes(city) && Number.isInteger(days) && days >= 1 && days <= 9, text);
};

test('lists models', async () => {
  const list = await client.models.list();
  assert.equal(list.data.length, 1);
  assert.equal(list.data[0].object, 'model');
  assert.equal(list.data[0].owned_by, 'engine');
  const one = await client.models.retrieve(model);
  assert.equal(one.id, model);
});

test('keeps to a JSON schema', async () => {
  for (let seed = 0; seed < 5; seed++) {
    const answer = await client.chat.completions.parse({
      model, messages, temperature: 1.5, seed, max_tokens: 60, response_format: format(weather),
    });
    judge(answer.choices[0].message.content);
  }
  const free = await client.chat.completions.create({
    model, messages, temperature: 1.5, max_tokens: 60, response_format: { type: 'json_object' },
  });
  assert.equal(typeof JSON.parse(free.choices[0].message.content), 'object');
});

test('calls tools', async () => {
  const request = { model, messages, tools, temperature: 1.2, seed: 3, max_tokens: 120 };
  for (const tool_choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
    const { message, finish_reason } = (await client.chat.completions.create({
      ...request, tool_choice, parallel_tool_calls: false,
    })).choices[0];
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.equal(message.tool_calls.length, 1);
    const call = message.tool_calls[0];
    assert.equal(call.function.name, 'get_weather');
    judge(call.function.arguments);
    const after = await client.chat.completions.create({
      ...request, messages: [...messages, message, { role: 'tool', tool_call_id: call.id, content: '20' }],
    });
    assert.ok(after.choices[0].message.content !== undefined);
  }
  const none = await client.chat.completions.create({ ...request, tool_choice: 'none' });
  assert.equal(none.choices[0].message.tool_calls, undefined);
});

test('streams a tool call', async () => {
  const stream = client.chat.completions.stream({
    model, messages, tools, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 120,
  });
  const message = await stream.finalMessage();
  assert.equal(message.tool_calls.length, 1);
  assert.match(message.tool_calls[0].id, /^call_/);
  judge(message.tool_calls[0].function.arguments);
});

test('tells log-probabilities and several answers', async () => {
  const chat = await client.chat.completions.create({
    model, messages, max_tokens: 4, logprobs: true, top_logprobs: 2, n: 2, seed: 1,
    presence_penalty: 0.5, frequency_penalty: 0.5, logit_bias: { 44: -100 },
  });
  assert.deepEqual(chat.choices.map((c) => c.index), [0, 1]);
  for (const { logprobs } of chat.choices) {
    assert.ok(logprobs.content.length > 0);
    for (const token of logprobs.content) {
      assert.ok(token.logprob <= 0);
      assert.equal(token.top_logprobs.length, 2);
    }
  }
  const text = await client.completions.create({
    model, prompt: 'In the beginning', max_tokens: 4, logprobs: 1, temperature: 0,
  });
  const { tokens, token_logprobs, text_offset } = text.choices[0].logprobs;
  assert.equal(tokens.join(''), text.choices[0].text);
  assert.equal(token_logprobs.length, tokens.length);
  assert.equal(text_offset[0], 0);
  const echo = await client.completions.create({
    model, prompt: 'In the beginning', max_tokens: 4, echo: true,
  });
  assert.match(echo.choices[0].text, /^In the beginning/);
});

test('names the request', async () => {
  const answer = await client.chat.completions.create(
    { model, messages, max_tokens: 1 }, { headers: { 'X-Request-Id': 'mine-7' } },
  );
  assert.equal(answer._request_id, 'mine-7');
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
  await assert.rejects(create({ modalities: ['audio'] }), (e) => {
    assert.equal(e.code, 'unsupported_parameter');
    return true;
  });
  await assert.rejects(create({ response_format: format({ properties: { a: { not: {} } } }) }), (e) => {
    assert.equal(e.code, 'invalid_json_schema');
    assert.match(e.message, /"not" at \/properties\/a/);
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
    ignore_eos: true,
  });
  let chunks = 0;
  for await (const _ of stream) if (++chunks === 3) break; // Leaving the loop aborts the request.
  assert.equal(chunks, 3);
});

test('cancels before the first token', async () => {
  const abort = new AbortController();
  const request = client.completions.create(
    { model, prompt: 'word '.repeat(300), max_tokens: 200, ignore_eos: true },
    { signal: abort.signal },
  );
  setTimeout(() => abort.abort(), 5);
  await assert.rejects(request, OpenAI.APIUserAbortError);
});
