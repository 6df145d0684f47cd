"""Python clients, unchanged, against prefill, decode and router: openai, LiteLLM, LangChain, and
the requests of vLLM's benchmark client. After each scenario every page is free or cached, on every
instance. ENGINE_BINARY names the engine."""

import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Else LiteLLM fetches a list when imported.

import httpx
import litellm
import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

litellm.suppress_debug_info = True
litellm.telemetry = False

PATIENCE = 60  # seconds until the three are ready, and for one request
IDLE = 10  # seconds until a finished scenario has given everything back

MESSAGES = [{"role": "user", "content": "Who was in the beginning?"}]
WEATHER = {
    "type": "object", "additionalProperties": False, "required": ["city", "days"],
    "properties": {"city": {"enum": ["Rome", "Oslo"]},
                   "days": {"type": "integer", "minimum": 1, "maximum": 9}},
}
FORMAT = {"type": "json_schema",
          "json_schema": {"name": "weather", "strict": True, "schema": WEATHER}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather",
                                           "parameters": WEATHER}}]


class Demo:
    """Three processes, as `engine serve --demo-pd` starts them."""

    def __init__(self):
        self.out = tempfile.TemporaryDirectory(prefix="engine-clients-")
        self.child = subprocess.Popen(
            [os.environ["ENGINE_BINARY"], "serve", "--demo-pd", "--out", self.out.name],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watchdog = threading.Timer(PATIENCE, self.child.kill)
        watchdog.start()
        text = ""
        for line in self.child.stdout:
            text += line
            if line.startswith("ready."):
                break
        else:
            raise RuntimeError("the demonstration did not start:\n" + text)
        watchdog.cancel()
        threading.Thread(target=self.child.stdout.read, daemon=True).start()
        self.url = re.search(r"http://\S+/v1", text).group()
        self.instances = re.findall(r"internal\s+(\S+:\d+)", text)

    def held(self):
        """Metrics that are not zero and must be when nothing runs."""
        watched = re.compile(r'engine_(kv_pages\{[^}]*state="(pinned|quarantine)"|kv_pages_leaked'
                             r"|requests\{|transfers_inflight)")
        busy = []
        for instance in self.instances:
            with urllib.request.urlopen(f"http://{instance}/metrics", timeout=IDLE) as answer:
                lines = [n for n in answer.read().decode().splitlines() if watched.match(n)]
            assert lines, f"{instance}/metrics lacks the page metrics"
            busy += [f"{instance} {n}" for n in lines if float(n.split()[-1]) != 0]
        return busy

    def idle(self):
        deadline = time.monotonic() + IDLE
        while busy := self.held():
            assert time.monotonic() < deadline, "still held:\n" + "\n".join(busy)
            time.sleep(0.05)

    def close(self):
        self.child.send_signal(signal.SIGINT)
        self.child.wait(PATIENCE)
        self.out.cleanup()


demo = model = None


def setUpModule():
    global demo, model
    demo = Demo()
    model = openai.OpenAI(base_url=demo.url, api_key="unused").models.list().data[0].id


def tearDownModule():
    demo.close()


class Case(unittest.TestCase):
    def tearDown(self):
        demo.idle()

    def judge(self, text):
        value = json.loads(text) if isinstance(text, str) else text
        self.assertEqual(set(value), {"city", "days"})
        self.assertIn(value["city"], ["Rome", "Oslo"])
        self.assertIn(value["days"], range(1, 10))


class OpenAI(Case):
    def setUp(self):
        self.client = openai.OpenAI(base_url=demo.url, api_key="unused", max_retries=0,
                                    timeout=PATIENCE)
        self.addCleanup(self.client.close)

    def chat(self, **more):
        return self.client.chat.completions.create(
            **{"model": model, "messages": MESSAGES, "max_tokens": 12, "temperature": 0} | more)

    def test_lists(self):
        self.assertEqual([m.owned_by for m in self.client.models.list()], ["engine"])
        self.assertEqual(self.client.models.retrieve(model).id, model)

    def test_streams_the_same_text(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.total_tokens, whole.usage.total_tokens)

    def test_completes(self):
        answer = self.client.completions.create(
            model=model, prompt=["In the beginning", "And God said"], max_tokens=5, logprobs=1)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertEqual("".join(answer.choices[0].logprobs.tokens), answer.choices[0].text)

    def test_keeps_to_a_schema(self):
        answer = self.chat(temperature=1.5, max_tokens=60, response_format=FORMAT)
        self.judge(answer.choices[0].message.content)

    def test_calls_tools(self):
        ask = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False,
               "max_tokens": 120, "temperature": 1.2, "seed": 3}
        message = self.chat(**ask).choices[0].message
        self.judge(message.tool_calls[0].function.arguments)
        self.chat(messages=[*MESSAGES, message, {
            "role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "20"}])
        with self.client.chat.completions.stream(model=model, messages=MESSAGES, **ask) as stream:
            final = stream.get_final_completion()
        self.judge(final.choices[0].message.tool_calls[0].function.arguments)

    def test_types_errors(self):
        for kind, code, more in [
            (openai.NotFoundError, "model_not_found", {"model": "nosuch"}),
            (openai.BadRequestError, "invalid_value", {"temperature": 9}),
            (openai.BadRequestError, "context_length_exceeded",
             {"messages": [{"role": "user", "content": "word " * 5000}]}),
        ]:
            with self.assertRaises(kind) as caught:
                self.chat(**more)
            self.assertEqual(caught.exception.code, code)
        huge = {"X-Huge": "a" * 400_000}
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client.models.list(extra_headers=huge)
        self.assertEqual(caught.exception.code, "headers_too_large")

    def test_cancels(self):
        with self.chat(stream=True, max_tokens=400, temperature=1,
                       extra_body={"ignore_eos": True}) as stream:
            for _, chunk in zip(range(3), stream):
                self.assertEqual(len(chunk.choices), 1)

    def test_cancels_without_waiting(self):
        async def leave():
            async with openai.AsyncOpenAI(base_url=demo.url, api_key="unused") as client:
                task = asyncio.create_task(client.completions.create(
                    model=model, prompt="In the beginning", max_tokens=400,
                    extra_body={"ignore_eos": True}))
                await asyncio.sleep(0.01)  # The answer takes several times as long.
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
        asyncio.run(leave())


class LiteLLM(Case):
    def ask(self, **more):
        return litellm.completion(**{
            "model": f"openai/{model}", "api_base": demo.url, "api_key": "unused",
            "messages": MESSAGES, "max_tokens": 12, "temperature": 0, "num_retries": 0,
            "timeout": PATIENCE} | more)

    def test_streams_the_same_text(self):
        whole = self.ask()
        stream = self.ask(stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in stream),
                         whole.choices[0].message.content)
        self.assertLessEqual(whole.usage.completion_tokens, 12)

    def test_tools_and_schema(self):
        answer = self.ask(temperature=1.5, max_tokens=60, response_format=FORMAT)
        self.judge(answer.choices[0].message.content)
        answer = self.ask(tools=TOOLS, tool_choice="required", parallel_tool_calls=False,
                          max_tokens=120)
        self.judge(answer.choices[0].message.tool_calls[0].function.arguments)

    def test_types_errors(self):
        with self.assertRaises(litellm.NotFoundError):
            self.ask(model="openai/nosuch")
        with self.assertRaises(litellm.ContextWindowExceededError):
            self.ask(messages=[{"role": "user", "content": "word " * 5000}])


class LangChain(Case):
    def llm(self, **more):
        return ChatOpenAI(**{"model": model, "base_url": demo.url, "api_key": "unused",
                             "max_retries": 0, "max_tokens": 60, "temperature": 0,
                             "timeout": PATIENCE} | more)

    def test_streams_the_same_text(self):
        llm = self.llm(max_tokens=12)
        whole = llm.invoke("Who was in the beginning?")
        self.assertEqual("".join(c.content for c in llm.stream("Who was in the beginning?")),
                         whole.content)
        self.assertLessEqual(whole.usage_metadata["output_tokens"], 12)

    def test_schema(self):
        schema = WEATHER | {"title": "weather", "description": "The weather"}
        for method in ["json_schema", "function_calling"]:
            form = self.llm(temperature=1.2).with_structured_output(schema, method=method)
            self.judge(form.invoke("How is the weather?"))

    def test_tools(self):
        @tool
        def add(a: int, b: int) -> int:
            """Adds two numbers."""
            return a + b
        answer = self.llm(max_tokens=120).bind_tools(
            [add], tool_choice="add", parallel_tool_calls=False).invoke("Add.")
        self.assertEqual(answer.tool_calls[0]["name"], "add")
        self.assertEqual(set(answer.tool_calls[0]["args"]), {"a", "b"})

    def test_types_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.llm(temperature=9).invoke("a")
        self.assertEqual(caught.exception.code, "invalid_value")

    def test_cancels(self):
        for _, chunk in zip(range(3), self.llm(max_tokens=400).stream("a")):
            pass


class Benchmark(Case):
    """What vLLM's benchmark client sends and how it reads the stream."""

    def test_requests_at_once(self):
        async def one(client, path, body):
            text, usage, done = "", None, False
            async with client.stream("POST", f"{demo.url}/{path}", json=body) as answer:
                self.assertEqual(answer.status_code, 200)
                async for line in answer.aiter_lines():
                    if not line or line.startswith(":"):
                        continue
                    data = line.removeprefix("data: ")
                    if data == "[DONE]":
                        done = True
                        continue
                    event = json.loads(data)
                    for choice in event["choices"]:
                        text += choice.get("text") or choice.get("delta", {}).get("content") or ""
                    usage = event.get("usage") or usage
            self.assertTrue(done)
            self.assertEqual(usage["completion_tokens"], 16)

        async def run():
            common = {"model": model, "temperature": 0.0, "repetition_penalty": 1.0, "stream": True,
                      "stream_options": {"include_usage": True}, "ignore_eos": True}
            async with httpx.AsyncClient(timeout=PATIENCE) as client:
                await asyncio.gather(*(
                    one(client, "completions", common | {
                        "prompt": f"In the beginning {i}", "max_tokens": 16, "logprobs": None})
                    if i % 2 else
                    one(client, "chat/completions", common | {
                        "messages": [{"role": "user", "content": [
                            {"type": "text", "text": f"In the beginning {i}"}]}],
                        "max_completion_tokens": 16})
                    for i in range(32)))
        asyncio.run(run())


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")  # The clients warn of themselves.
