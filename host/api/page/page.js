"use strict";
// The page talks to the server it came from and to nobody else. Whatever it shows it shows as text.

const $ = (id) => document.getElementById(id);
const kept = (id) => sessionStorage.getItem("engine." + id);
const turns = []; // {role, content}
let running = null; // the AbortController of the answer under way

// headers are those of every request; the key stays in this tab.
function headers(more) {
  const h = Object.assign({}, more);
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

// element makes one with a text.
function element(name, text, kind) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
}

// show adds a turn and returns the paragraph that holds its text.
function show(role, text) {
  const item = element("li", undefined, role === "user" ? "asked" : "told");
  item.append(element("span", role === "user" ? "you" : "model", "by"));
  const body = element("p", text);
  item.append(body);
  $("turns").append(item);
  follow(true);
  return body;
}

// follow keeps the end in view, unless the reader has scrolled away from it.
function follow(always) {
  const list = $("turns");
  const near = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  if (always || near) list.scrollTop = list.scrollHeight;
}

function fault(text) {
  $("fault").textContent = text || "";
  $("fault").hidden = !text;
}

// problem reads the server's error object.
async function problem(response) {
  const text = await response.text();
  try {
    const e = JSON.parse(text).error;
    return e.message + (e.code ? " (" + e.code + ")" : "");
  } catch {
    return response.status + " " + response.statusText;
  }
}

// events yields the JSON of each event of a stream.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const data = line.slice(6);
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

// body is what is asked of the API.
function body(kind) {
  const b = { stream: true, stream_options: { include_usage: true } };
  if ($("most").value) b.max_tokens = Number($("most").value);
  if ($("temperature").value) b.temperature = Number($("temperature").value);
  if (kind === "chat") b.messages = turns;
  else b.prompt = turns[turns.length - 1].content;
  return b;
}

// ask sends the conversation and shows the answer as it comes.
async function ask(text) {
  const kind = $("kind").value;
  fault("");
  turns.push({ role: "user", content: text });
  show("user", text);
  const answer = { role: "assistant", content: "" };
  const place = show("assistant", "");
  running = new AbortController();
  busy(true);
  const begun = performance.now();
  let first = 0;
  try {
    const response = await fetch(kind === "chat" ? "/v1/chat/completions" : "/v1/completions", {
      method: "POST", signal: running.signal, body: JSON.stringify(body(kind)),
      headers: headers({ "Content-Type": "application/json", "X-Engine-Report": "1" }),
    });
    if (!response.ok) throw new Error(await problem(response));
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      if (event.phases) phases(event.phases, performance.now() - begun, first);
      const choice = event.choices && event.choices[0];
      const piece = choice && (choice.delta ? choice.delta.content : choice.text);
      if (!piece) continue;
      if (!first) first = performance.now() - begun;
      answer.content += piece;
      place.textContent = answer.content;
      follow(false);
    }
  } catch (e) {
    if (e.name === "AbortError") place.textContent = answer.content + " [stopped]";
    else fault(e.message);
  }
  if (answer.content) turns.push(answer);
  else { turns.pop(); place.parentElement.remove(); }
  running = null;
  busy(false);
}

function busy(now) {
  $("send").disabled = now;
  $("stop").disabled = !now;
  $("turns").setAttribute("aria-busy", String(now));
}

const ms = (n) => (n >= 1000 ? (n / 1000).toFixed(2) + " s" : n.toFixed(1) + " ms");
const size = (n) => (n >= 1 << 20 ? (n / (1 << 20)).toFixed(1) + " MiB" : (n / 1024).toFixed(1) + " KiB");

// phases draws what the server said an answer cost; transfer overlaps prefill.
function phases(p, whole, first) {
  const parts = [["queue", p.queue_ms], ["prefill", p.prefill_ms], ["decode", p.decode_ms]];
  const notes = {
    queue: ms(p.queue_ms), decode: ms(p.decode_ms) + ", " + p.output_tokens + " tokens",
    prefill: ms(p.prefill_ms) + ", " + p.prefill_chunks + (p.prefill_chunks === 1 ? " chunk" : " chunks"),
  };
  if (p.bytes_sent > 0) {
    parts.splice(2, 0, ["transfer", p.transfer_ms]);
    notes.transfer = ms(p.transfer_ms) + ", " + size(p.bytes_sent);
  }
  const bar = $("bar"), list = $("phases");
  bar.replaceChildren();
  list.replaceChildren();
  for (const [name, took] of parts) {
    const part = element("span", undefined, name);
    // Prefill goes on while its keys and values are sent: the bar shows what it took beside that.
    const alone = name === "prefill" && p.bytes_sent > 0 ? took - p.transfer_ms : took;
    part.style.flexGrow = String(Math.max(alone, 0.01));
    part.title = name + " " + notes[name];
    bar.append(part);
    const term = element("dt");
    term.append(element("i", undefined, name), name);
    list.append(term, element("dd", notes[name]));
  }
  bar.setAttribute("aria-label", parts.map(([name]) => name + " " + notes[name]).join(", "));
  const more = [["first token", ms(p.ttft_ms) + " there, " + ms(first) + " here"],
    ["whole answer", ms(whole)], ["prompt", p.prompt_tokens + " tokens, " + p.cached_tokens + " cached"],
    ["policy", p.policy || "–"]];
  for (const [name, text] of more) list.append(element("dt", name), element("dd", text));
}

// columns are those of the table: a title, whether it is a number, and how a row fills it.
const requestColumns = [
  ["state", false, (r) => (r.state === "prefilling" ? "prefill " + r.computed_tokens + "/" + r.prompt_tokens : r.state)],
  ["in", true, (r) => r.prompt_tokens], ["out", true, (r) => r.output_tokens],
  ["age", true, (r) => r.age_s.toFixed(1) + " s"], ["pages", true, (r) => r.pages],
  ["reason", false, (r) => r.policy_words || r.policy_reason || "–"], ["tenant", false, (r) => r.tenant || "–"],
  ["request", false, (r) => r.id || "–"],
];
const instanceColumns = [
  ["instance", false, (i) => i.name], ["role", false, (i) => i.role],
  ["state", false, (i) => (i.problem ? i.problem : i.up ? "up" : "down")],
  ["run", true, (i) => i.running], ["wait", true, (i) => i.waiting],
  ["pages", true, (i) => i.pages.held + "/" + i.pages.total],
  ["tok/s", true, (i) => Math.round(i.prefill_tokens_per_s + i.decode_tokens_per_s)],
  ["policy", false, (i) => i.policy || "–"],
];

function table(columns, rows, empty) {
  const head = $("queue").tHead.rows[0], lines = $("queue").tBodies[0];
  head.replaceChildren(...columns.map(([title, number]) => {
    const cell = element("th", title, number ? "number" : "");
    cell.scope = "col";
    return cell;
  }));
  lines.replaceChildren(...rows.map((row) => {
    const line = element("tr", undefined, row.problem || row.up === false ? "alarm" : "");
    line.append(...columns.map(([, number, fill]) => element("td", String(fill(row)), number ? "number" : "")));
    return line;
  }));
  if (!rows.length) {
    const cell = element("td", empty);
    cell.colSpan = columns.length;
    const line = element("tr");
    line.append(cell);
    lines.append(line);
  }
}

// draw shows what the instance does.
function draw(s) {
  $("who").textContent = s.model + " · " + s.node + " · " + s.role + (s.ready ? "" : " · not ready");
  const all = s.instances || [];
  const policies = all.map((i) => i.policy && i.name + ": " + i.policy).filter(Boolean);
  $("policy").textContent = "policy " + (s.policy || policies.join(", ") || "–");
  $("load").textContent = s.running + " running, " + s.waiting + " waiting · pages " + s.pages.held + " of " +
    s.pages.total + " · " + s.prefill_tokens_per_s.toFixed(0) + " tok/s in, " +
    s.decode_tokens_per_s.toFixed(0) + " out";
  if (all.length) table(instanceColumns, all, "no instance");
  else table(requestColumns, s.requests, "no request runs or waits");
}

// watch asks once a second while somebody looks.
async function watch() {
  if (document.visibilityState === "visible") {
    try {
      const response = await fetch("/ui/state", { headers: headers() });
      if (response.ok) draw(await response.json());
      else if (response.status === 401) $("who").textContent = "an API key is needed: Settings, API key";
      else $("who").textContent = await problem(response);
    } catch {
      $("who").textContent = "the instance does not answer";
    }
  }
  setTimeout(watch, 1000);
}

function send(event) {
  event.preventDefault();
  const text = $("ask").value;
  if (running || !text.trim()) return;
  $("ask").value = "";
  ask(text);
}

function start() {
  for (const id of ["key", "most", "temperature", "kind"]) {
    if (kept(id) !== null) $(id).value = kept(id);
    $(id).addEventListener("change", () => sessionStorage.setItem("engine." + id, $(id).value));
  }
  $("form").addEventListener("submit", send);
  $("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running) running.abort();
  });
  $("stop").addEventListener("click", () => running && running.abort());
  $("clear").addEventListener("click", () => {
    if (running) running.abort();
    turns.length = 0;
    $("turns").replaceChildren();
    fault("");
    $("ask").focus();
  });
  $("ask").focus();
  watch();
}

start();
