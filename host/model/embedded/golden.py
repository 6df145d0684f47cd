"""Computes testdata/golden.json: greedy tokens and logits of the checkpoint, in float64.

It reads the exported files alone and shares no code with train.py, so that a mistake in either, or in
the engine, shows as a difference. Keys and values are kept in full precision.

    venv/bin/python golden.py checkpoint testdata/golden.json

A case: prompt, prompt_ids (with the special tokens that the tokenizer adds), greedy_ids (40, going on
past </s>), text, logits_last_prompt_pos, step_top5 (ids and logits of each step), prompt_logprobs (of
each prompt token after the first), min_top2_gap (the smallest distance between the best two logits on
the path: what rounding must stay below).
"""

import json
import sys

import numpy as np
from tokenizers import Tokenizer

STEPS = 40
PROMPTS = [
    "In the beginning",
    "And Jesus answered and said unto them, Verily I say unto you,",
    "<|user|>Thou shalt not</s><|assistant|>",
]


def load(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    with open(f"{folder}/model.safetensors", "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    weights = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        bits = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
        weights[name] = bits.view(np.float32).astype(np.float64).reshape(t["shape"])
    return config, weights


def norm(x, weight, eps):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """Rotary embedding of x [tokens, heads, dim]: element i pairs with i + dim/2."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None] * theta ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)[:, None, :]
    return np.concatenate([z.real, z.imag], -1)


def forward(config, w, ids):
    """Logits [tokens, vocabulary] of a whole sequence, computed from nothing."""
    heads, groups, dim = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    n, eps = len(ids), config["rms_norm_eps"]
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        def of(name):
            return w[f"model.layers.{layer}.{name}.weight"]
        h = norm(x, of("input_layernorm"), eps)
        q = rotate((h @ of("self_attn.q_proj").T).reshape(n, heads, dim), config["rope_theta"])
        k = rotate((h @ of("self_attn.k_proj").T).reshape(n, groups, dim), config["rope_theta"])
        v = (h @ of("self_attn.v_proj").T).reshape(n, groups, dim)
        mixed = []
        for head in range(heads):
            group = head // (heads // groups)
            score = q[:, head] @ k[:, group].T / dim ** 0.5 + hidden
            p = np.exp(score - score.max(-1, keepdims=True))
            mixed.append(p / p.sum(-1, keepdims=True) @ v[:, group])
        x = x + np.concatenate(mixed, -1) @ of("self_attn.o_proj").T
        h = norm(x, of("post_attention_layernorm"), eps)
        gate = h @ of("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
    return norm(x, w["model.norm.weight"], eps) @ w["model.embed_tokens.weight"].T


def case(config, weights, tok, prompt, prompt_ids):
    ids, steps = list(prompt_ids), []
    for _ in range(STEPS):
        out = forward(config, weights, ids)
        steps.append(out[-1])
        if len(steps) == 1:
            whole = out
        ids.append(int(out[-1].argmax()))
    best = np.sort(np.array(steps), -1)
    log = whole - whole.max(-1, keepdims=True)
    log -= np.log(np.exp(log).sum(-1, keepdims=True))
    n = len(prompt_ids)
    return {
        "prompt": prompt, "prompt_ids": prompt_ids, "greedy_ids": ids[n:],
        "text": tok.decode(ids[n:], skip_special_tokens=False),
        "min_top2_gap": round(float((best[:, -1] - best[:, -2]).min()), 5),
        "logits_last_prompt_pos": [round(float(x), 5) for x in steps[0]],
        "step_top5": [[[int(i), round(float(s[i]), 5)] for i in np.argsort(-s)[:5]] for s in steps],
        "prompt_logprobs": [round(float(log[i][prompt_ids[i + 1]]), 5) for i in range(n - 1)],
    }


def main(folder, out):
    config, weights = load(folder)
    tok = Tokenizer.from_file(f"{folder}/tokenizer.json")
    cases = [case(config, weights, tok, p, tok.encode(p).ids) for p in PROMPTS]
    # A long prompt: what the first one leads to, until 450 positions are taken.
    ids = list(cases[0]["prompt_ids"])
    while len(ids) < 450:
        ids.append(int(forward(config, weights, ids)[-1].argmax()))
    cases.append(case(config, weights, tok, tok.decode(ids), ids))
    golden = {"model": "embedded", "reference": "golden.py, float64", "cases": cases}
    with open(out, "w", encoding="utf-8") as f:
        json.dump(golden, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    for c in cases:
        print(f"{c['prompt'][-60:]!r} -> {c['text']!r}, gap {c['min_top2_gap']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
