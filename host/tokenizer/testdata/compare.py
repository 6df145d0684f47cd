#!/usr/bin/env python3
"""Compares this module's tokenizer with Hugging Face's `tokenizers` on random strings.

Usage:  pip install tokenizers
        python3 host/tokenizer/testdata/compare.py [--data DIR] [--count N] [--seed S] [NAME ...]

Run it from the repository root; it needs Go. DIR is the shared data (default ../shared/data).
For each tokenizer: N strings (all of Unicode, mixed scripts, white space, special-token
look-alikes) are encoded plain, with special tokens added, and with special tokens as text, and
decoded; then N random ID sequences are decoded. Exit status 1 if anything differs.
"""
import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile

import tokenizers

NAMES = ["stories260K", "llama2", "mistral_v1", "gpt2", "llama3_1", "qwen3", "gemma3"]
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
SCRIPTS = [(0x20, 0x7E), (0xA1, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F),
           (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF),
           (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x2150, 0x218F),
           (0x2581, 0x2581), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
           (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x1F300, 0x1FAFF), (0x20000, 0x2FA1F)]
BITS = ["<s>", "</s>", "<unk>", "<s", "s>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>",
        "<|im_start|>", "<|im_end|>", "<|im_", "<think>", "</think>", "<bos>", "<eos>", "<pad>",
        "<start_of_turn>", "<end_of_turn>", "<unused12>", "<0x41>", "<0xE4>", "[INST]", "<table>",
        "'s", "'T", "'LL", "'\u017f", "'re", "'ve", "don't", "\r\n", "\n\n", "  ", "   ", "\u2581",
        "\u2581\u2581", "\u0120", "e\u0301", "\u1100\u1161\u11a8", "\U0001f468\u200d\U0001f469",
        "123", "1234567", "\u0662\u0663", "\u00b2", "\u2167", "=>", "...", "();", "\ufffd", "\x00"]


def string(rng):
    out = []
    script = rng.choice(SCRIPTS)
    for _ in range(rng.choice([1, 2, 5, 12, 30])):
        kind = rng.random()
        if kind < 0.25:
            c = rng.randrange(0x110000)
            out.append("x" if 0xD800 <= c < 0xE000 else chr(c))
        elif kind < 0.55:
            lo, hi = script if rng.random() < 0.7 else rng.choice(SCRIPTS)
            out.append("".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 6))))
        elif kind < 0.7:
            out.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 9]))
        elif kind < 0.85:
            out.append(rng.choice(BITS))
        else:
            out.append("".join(chr(rng.randint(97, 122)) for _ in range(rng.randint(1, 9))))
            out.append(" ")
    return "".join(out)


def folder(data, name, into):
    """A folder that holds tokenizer.json alone, unpacked."""
    source = f"{data}/models/stories260k/hf-f32/tokenizer.json"
    if name == "stories260K":
        content = open(source, "rb").read()
    else:
        content = gzip.open(f"{data}/tokenizers/{name}/tokenizer.json.gz").read()
    path = os.path.join(into, name)
    os.mkdir(path)
    open(os.path.join(path, "tokenizer.json"), "wb").write(content)
    return path


def ours(program, path, questions):
    lines = "".join(json.dumps(q) + "\n" for q in questions)
    done = subprocess.run([program, "tokens", path], input=lines, stdout=subprocess.PIPE,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def valid_runs(reference, ids):
    """Whether each run of byte tokens is UTF-8: only then do we promise the same text."""
    run = b""
    for token in [reference.id_to_token(i) or "" for i in ids] + [""]:
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            run += bytes([int(token[3:5], 16)])
            continue
        try:
            run.decode()
        except UnicodeDecodeError:
            return False
        run = b""
    return True


def skipped(reference, ids):
    special = {i for i, t in reference.get_added_tokens_decoder().items() if t.special}
    return [i for i in ids if i not in special]


def compare(program, path, rng, count):
    reference = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    texts = [string(rng) for _ in range(count)]
    size = reference.get_vocab_size()
    lists = [[rng.randrange(size) for _ in range(rng.randint(1, 12))] for _ in range(count)]
    got = ours(program, path, [{"text": t} for t in texts] + [{"ids": i} for i in lists])
    bad = {}

    def check(what, subject, mine, theirs):
        if mine != theirs:
            bad.setdefault(what, []).append((subject, mine, theirs))

    for text, mine in zip(texts, got):
        ids = reference.encode(text, add_special_tokens=False).ids
        check("encode", text, mine["ids"], ids)
        check("encode, special added", text, mine["special"], reference.encode(text).ids)
        check("decode", text, mine["decoded"], reference.decode(ids, skip_special_tokens=False))
        check("decode, special skipped", text, mine["skipped"], reference.decode(ids))
    reference.encode_special_tokens = True
    for text, mine in zip(texts, got):
        theirs = reference.encode(text, add_special_tokens=False).ids
        check("encode, special as text", text, mine["plain"], theirs)
    broken = 0
    for ids, mine in zip(lists, got[count:]):
        if not valid_runs(reference, ids):
            broken += 1
            continue
        theirs = reference.decode(ids, skip_special_tokens=False)
        check("decode random ids", ids, mine["decoded"], theirs)
        if valid_runs(reference, skipped(reference, ids)):
            check("decode random ids, special skipped", ids, mine["skipped"], reference.decode(ids))
    return bad, broken


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as work:
        program = os.path.join(work, "compare")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare")
        subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True)
        for name in args.names:
            rng = random.Random(f"{args.seed} {name}")
            path = folder(args.data, name, work)
            bad, broken = compare(program, path, rng, args.count)
            print(f"{name}: {args.count} strings and {args.count - broken} ID sequences, "
                  f"{sum(map(len, bad.values()))} differ (tokenizers {tokenizers.__version__}, "
                  f"seed {args.seed}; {broken} sequences with broken byte runs left out)")
            for what, cases in bad.items():
                failed = True
                print(f"  {what}: {len(cases)}")
                for subject, mine, theirs in cases[:3]:
                    print(f"    {subject!r}\n      ours   {mine}\n      theirs {theirs}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
