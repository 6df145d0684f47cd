#!/usr/bin/env python3
"""Compares this module's chat templates with Jinja2, set up as Hugging Face transformers does.

Usage:  pip install jinja2
        python3 host/tokenizer/testdata/compare_chat.py [--data DIR] [TEMPLATE.jinja ...]

Run it from the repository root; it needs Go. Without arguments it renders the templates in the
shared data (DIR, default ../shared/data: llama3_1, qwen3, SmolLM2). Templates of other families
are named on the command line, for instance those of the llama.cpp inside PyPI's llama-cpp-python
source package (vendor/llama.cpp/models/templates). Every conversation below is rendered with and
without a generation prompt. Where the template refuses (raise_exception), so must we; where
Python fails (None + "text", a missing key), we may render, and these are counted. Exit status 1
if anything differs. --write-golden renders the small templates of chat_templates.json into
chat_golden.json, which the Go tests read.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's part for training; it prints its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather <now> & \"later\" at a 'place'",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "Città, 城市"},
        "days": {"type": "integer", "default": 3, "minimum": 1},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "exact": {"type": "boolean", "default": False},
        "limit": {"type": "number", "default": 1.5, "maximum": 1e21}}}}}
NOTHING = {"type": "function", "function": {
    "name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}}


def says(role, content, **more):
    return dict({"role": role, "content": content}, **more)


def call(name, arguments, ident="abcdefghi"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    """Yields (name, messages, tools, variables)."""
    texts = {
        "plain": "Hello!", "empty": "", "blank": "  \n ", "padded": "  two spaces  \n",
        "lines": "one\n\ntwo\r\nthree\n", "quotes": "it's \"quoted\" \\ back",
        "markup": "<|im_end|> <b>&amp;</b> {{ x }} {% if %} {# c #} </s>[INST]",
        "unicode": "naïve 你好 😀 e\u0301 \u00a0\u2028", "json": '{"a": [1, 2.0, null, true]}',
        "think": "<think>\nhm\n</think>\n\nSo: 4", "long": "word " * 200,
    }
    for name, text in texts.items():
        yield f"user {name}", [says("user", text)], None, {}
        yield f"turns {name}", [says("system", text), says("user", text), says("assistant", text),
                                says("user", text)], None, {}
    yield from shapes()
    yield from with_tools()


def shapes():
    hi, hello, bye = says("user", "Hi"), says("assistant", "Hello"), says("user", "Bye")
    rules = says("system", "Be brief.")
    yield "two users", [hi, bye], None, {}
    yield "assistant first", [hello, hi], None, {}
    yield "assistant last", [hi, hello], None, {}
    yield "system alone", [rules], None, {}
    yield "system late", [hi, hello, rules, bye], None, {}
    yield "two systems", [rules, rules, hi], None, {}
    yield "no messages", [], None, {}
    yield "unknown role", [says("critic", "Hm"), hi], None, {}
    yield "no content", [{"role": "user"}], None, {}
    yield "null content", [hi, says("assistant", None), bye], None, {}
    yield "number content", [says("user", 12)], None, {}
    yield "ten turns", [rules] + [hi, hello] * 10 + [bye], None, {}
    yield "parts", [says("user", [{"type": "text", "text": "Hi"}])], None, {}
    yield "two parts", [rules, says("user", [{"type": "text", "text": "a"},
                                             {"type": "text", "text": "b"}])], None, {}
    yield "thinking off", [rules, hi], None, {"enable_thinking": False}
    yield "thinking on", [rules, hi], None, {"enable_thinking": True}
    yield "reasoning", [hi, says("assistant", "4", reasoning_content="2+2"), bye], None, {}
    yield "date", [hi], None, {"date_string": "01 Jan 2025"}
    yield "documents", [hi], None, {"documents": [{"title": "A", "text": "b"}]}


def with_tools():
    hi, rules = says("user", "Weather in Rome?"), says("system", "Be brief.")
    args = {"city": "Rome", "days": 2, "exact": True, "limit": 0.5, "x": None}
    asks = says("assistant", None, tool_calls=[call("get_weather", args)])
    spoken = says("assistant", "Let me see.", tool_calls=[call("get_weather", args)])
    text = says("assistant", "", tool_calls=[call("get_weather", json.dumps(args))])
    both = says("assistant", "", tool_calls=[call("get_weather", args), call("ping", {}, "123456789")])
    answer = says("tool", '{"degrees": 21}', tool_call_id="abcdefghi", name="get_weather")
    second = says("tool", "pong", tool_call_id="123456789", name="ping")
    done = says("assistant", "21 degrees.")
    for tools in ([WEATHER], [WEATHER, NOTHING], []):
        n = len(tools)
        yield f"{n} tools, asked", [hi], tools, {}
        yield f"{n} tools, rules", [rules, hi], tools, {}
        yield f"{n} tools, called", [hi, asks], tools, {}
        yield f"{n} tools, spoken", [rules, hi, spoken, answer], tools, {}
        yield f"{n} tools, text arguments", [hi, text, answer, done], tools, {}
        yield f"{n} tools, two calls", [hi, both, answer, second, done, hi], tools, {}
        yield f"{n} tools, in user message", [hi, asks, answer], tools, {
            "tools_in_user_message": False}
    yield "tool result without tools", [hi, asks, answer, done], None, {}
    yield "tool result as object", [hi, asks, says("tool", {"degrees": 21.0})], [WEATHER], {}
    yield "ipython", [hi, asks, says("ipython", "21")], [WEATHER], {}
    yield "builtin tools", [rules, hi], [WEATHER], {"builtin_tools": ["brave_search"]}


def templates(data, files):
    for name in files:
        yield os.path.basename(name), open(name, encoding="utf-8").read()
    if files:
        return
    for name in ("llama3_1", "qwen3"):
        config = json.load(open(f"{data}/tokenizers/{name}/tokenizer_config.json"))
        yield name, config["chat_template"]
    yield "SmolLM2", json.load(open(f"{data}/real/chat_smollm2.json"))["template"]


def expected(template, messages, tools, prompt, variables):
    try:
        return {"text": template.render(messages=messages, tools=tools, documents=variables.pop(
            "documents", None), add_generation_prompt=prompt, **variables)}
    except Exception as e:  # whatever it is, we must fail too
        return {"error": f"{type(e).__name__}: {e}"}


def verdict(mine, theirs, blind):
    if blind and "does not support tools" in mine.get("error", ""):
        return "same"  # Jinja2 renders the same without the tools: we say so instead
    if "error" in theirs and "error" not in mine:
        return "differs" if theirs["error"].startswith("TemplateError") else "lenient"
    same = ("error" in mine) == ("error" in theirs) and mine.get("text") == theirs.get("text")
    return "same" if same else "differs"


def write_golden():
    here = os.path.dirname(os.path.abspath(__file__))
    cases, env = [], environment()
    for case in json.load(open(os.path.join(here, "chat_templates.json"), encoding="utf-8")):
        template = env.from_string(case["template"])
        case["want"] = expected(template, case.get("messages", []), case.get("tools"),
                                case.get("prompt", False), dict(case.get("vars", {})))
        cases.append(case)
    with open(os.path.join(here, "chat_golden.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, ensure_ascii=False, indent=1)
        out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--show", type=int, default=2, help="differences shown for each template")
    parser.add_argument("--write-golden", action="store_true")
    args = parser.parse_args()
    if args.write_golden:
        return write_golden()
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    cases, env = [], environment()
    for name, source in templates(args.data, args.files):
        try:
            compiled = env.from_string(source)
        except jinja2.TemplateError as e:
            print(f"{name}: Jinja2 does not parse it: {e}")
            continue
        for what, messages, tools, variables in conversations():
            for prompt in (True, False):
                question = {"template": source, "messages": messages, "tools": tools,
                            "add_generation_prompt": prompt, "vars": {**special, **variables}}
                want = expected(compiled, messages, tools, prompt, {**special, **variables})
                without = expected(compiled, messages, None, prompt, {**special, **variables})
                cases.append((name, f"{what}, prompt={prompt}", question, want, want == without))
    with tempfile.TemporaryDirectory() as work:
        program = os.path.join(work, "compare")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare")
        subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True)
        lines = "".join(json.dumps(c[2]) + "\n" for c in cases)
        done = subprocess.run([program, "chat", f"{args.data}/models/stories260k/hf-f32"],
                              input=lines, stdout=subprocess.PIPE, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    sys.exit(report(cases, answers, args.show))


def report(cases, answers, show):
    totals = {}
    for (name, what, question, want, blind), mine in zip(cases, answers, strict=True):
        counts, bad = totals.setdefault(name, ({}, []))
        kind = verdict(mine, want, blind)
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "differs":
            bad.append((what, mine, want))
    for name, (counts, bad) in totals.items():
        print(f"{name}: {sum(counts.values())} renderings, {len(bad)} differ, "
              f"{counts.get('lenient', 0)} rendered where Python fails")
        for what, mine, want in bad[:show]:
            print(f"  {what}\n    ours   {json.dumps(mine, ensure_ascii=False)}"
                  f"\n    theirs {json.dumps(want, ensure_ascii=False)}")
    return any(bad for _, bad in totals.values())


if __name__ == "__main__":
    main()
