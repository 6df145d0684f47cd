#!/usr/bin/env python3
"""Writes tiny random models of the families that no trained test model exists for, each with the
tokens and logits that a float64 forward pass of its own gives.

Usage: python3 random_models.py [NAME ...]       (needs numpy; writes random/NAME beside this file)

A model is a folder with config.json, model.safetensors and golden.json. The forward pass below
shares nothing with the Go code: it reads config.json with the names and defaults of the families'
classes in the transformers library, keeps no cache, and computes every position anew for each
token. Seeds are tried until no greedy choice is closer than MIN_GAP, so that a correct float32
engine gives exactly these tokens. The same numpy gives the same bytes again.
"""

import json
import math
import os
import struct
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 24
PROMPTS = (1, 7, 29, 96)
MIN_GAP = 0.02

PLAIN = dict(hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=64, max_position_embeddings=640, rms_norm_eps=1e-5,
             rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=True, torch_dtype="bfloat16",
             bos_token_id=None, eos_token_id=None)


def config(architecture, **changes):
    return dict(architectures=[architecture], **{**PLAIN, **changes})


# What each model is there for stands beside it. "sinks" is no key of config.json: it is asked for
# when the model is loaded.
MODELS = {
    # fused projections, three quarters of a head turn, a window in every layer
    "phi3": (config("Phi3ForCausalLM", partial_rotary_factor=0.75, sliding_window=40,
                    original_max_position_embeddings=640, tie_word_embeddings=False), 0),
    # six experts, two of them for a token
    "mixtral": (config("MixtralForCausalLM", num_local_experts=6, num_experts_per_tok=2,
                       sliding_window=None, rope_theta=1e6), 0),
    # three of five experts, and a window
    "mixtral-window": (config("MixtralForCausalLM", num_local_experts=5, num_experts_per_tok=3,
                              intermediate_size=24, sliding_window=24), 0),
    # YaRN as Qwen's model cards ask for it
    "yarn": (config("Qwen2ForCausalLM", rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=32)), 0),
    # YaRN with every number of its own
    "yarn-own": (config("LlamaForCausalLM", head_dim=16, rope_scaling=dict(
        rope_type="yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=16,
        beta_slow=2, mscale=1.2, mscale_all_dim=0.8, truncate=False)), 0),
    # linear scaling
    "linear": (config("LlamaForCausalLM", rope_scaling=dict(type="linear", factor=4.0)), 0),
    # llama3 scaling, as newer files write it, with pairs in all three ranges
    "llama3": (config("LlamaForCausalLM", head_dim=16, rope_theta=None, rope_parameters=dict(
        rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=64)), 0),
    # four first tokens stay visible beside a window
    "sinks": (config("MistralForCausalLM", sliding_window=16), 4),
    # some layers with a window, some without
    "qwen2-window": (config("Qwen2ForCausalLM", num_hidden_layers=3, use_sliding_window=True,
                            sliding_window=20, max_window_layers=1), 0),
    # heads wider than hidden_size / num_attention_heads, norms of queries and keys
    "qwen3": (config("Qwen3ForCausalLM", head_dim=12, tie_word_embeddings=False), 0),
    # an embedding scale that is not a power of two
    "gemma": (config("GemmaForCausalLM", hidden_size=40, head_dim=12, hidden_act="gelu",
                     torch_dtype="float32", intermediate_size=28), 0),
    # soft caps of scores and of logits that are felt, a window in every other layer
    "gemma2": (config("Gemma2ForCausalLM", hidden_act=None, hidden_activation="gelu_pytorch_tanh",
                      hidden_size=24, intermediate_size=28, num_hidden_layers=3, head_dim=12,
                      sliding_window=12, query_pre_attn_scalar=10, attn_logit_softcapping=2.0,
                      final_logit_softcapping=5.0), 0),
    # no layer_types, scaled global layers, a score scale that is not that of the head, and sinks
    "gemma3": (config("Gemma3ForCausalLM", hidden_act=None, hidden_activation="gelu_pytorch_tanh",
                      hidden_size=24, intermediate_size=28, num_hidden_layers=4, head_dim=12,
                      sliding_window_pattern=3, sliding_window=12, query_pre_attn_scalar=10,
                      rope_theta=1e6, rope_local_base_freq=5000.0, torch_dtype="float16",
                      rope_scaling=dict(rope_type="linear", factor=8.0)), 3),
}


# --- The forward pass ---

class Reference:
    """One model in float64."""

    def __init__(self, config, weights, sinks):
        self.config, self.weights, self.sinks = config, weights, sinks
        self.family = config["architectures"][0].removesuffix("ForCausalLM")
        self.gemma = self.family.startswith("Gemma")
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads

    def norm(self, x, name):
        weight = self.weights[name + ".weight"] + (1 if self.gemma else 0)
        mean = np.mean(np.square(x), axis=-1, keepdims=True)
        return weight * (x / np.sqrt(mean + self.config["rms_norm_eps"]))

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights.get(name + ".bias", 0)

    def activation(self, x):
        if self.gemma:
            inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)
            return 0.5 * x * (1 + np.tanh(inner))
        return x / (1 + np.exp(-x))

    def slides(self, layer):
        """Whether a layer has a sliding window."""
        c = self.config
        if self.family in ("Mistral", "Mixtral", "Phi3"):
            return c["sliding_window"] is not None
        if self.family in ("Qwen2", "Qwen3"):
            return c.get("use_sliding_window", False) and layer >= c["max_window_layers"]
        if self.family == "Gemma2":
            return layer % 2 == 0
        if self.family == "Gemma3":
            return (layer + 1) % c["sliding_window_pattern"] != 0
        return False

    def frequencies(self, layer):
        """Radians a position of each pair, and what cosines and sines are multiplied by."""
        c = self.config
        scaling = c.get("rope_parameters") or c.get("rope_scaling") or {}
        theta = c.get("rope_theta") or scaling["rope_theta"]
        kind = scaling.get("rope_type") or scaling.get("type") or "default"
        if self.family == "Gemma3" and self.slides(layer):
            theta, kind = c["rope_local_base_freq"], "default"
        dims = int(self.head_dim * c.get("partial_rotary_factor", 1.0))
        plain = theta ** (-np.arange(0, dims, 2) / dims)
        if kind == "linear":
            return plain / scaling["factor"], 1.0
        if kind == "llama3":
            return llama3(plain, scaling), 1.0
        if kind == "yarn":
            return yarn(plain, theta, dims, scaling)
        return plain, 1.0

    def rotate(self, x, layer):
        """x is [positions][heads][head_dim]; pairs are (i, i + half)."""
        frequencies, scale = self.frequencies(layer)
        half = len(frequencies)
        angles = np.arange(len(x))[:, None, None] * frequencies
        cos, sin = scale * np.cos(angles), scale * np.sin(angles)
        low, high, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], axis=-1)

    def attention(self, x, layer):
        at, n, d = f"model.layers.{layer}.self_attn.", len(x), self.head_dim
        if self.family == "Phi3":
            fused = self.linear(x, at + "qkv_proj")
            cut = [self.heads * d, (self.heads + self.kv_heads) * d]
            q, k, v = np.split(fused, cut, axis=1)
        else:
            q, k, v = (self.linear(x, at + name) for name in ("q_proj", "k_proj", "v_proj"))
        q = q.reshape(n, self.heads, d)
        k, v = k.reshape(n, self.kv_heads, d), v.reshape(n, self.kv_heads, d)
        if self.family in ("Qwen3", "Gemma3"):
            q, k = self.norm(q, at + "q_norm"), self.norm(k, at + "k_norm")
        q, k = self.rotate(q, layer), self.rotate(k, layer)
        scale = 1 / math.sqrt(self.config.get("query_pre_attn_scalar", d))
        query, key = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = key <= query
        if self.slides(layer):
            seen &= (key > query - self.config["sliding_window"]) | (key < self.sinks)
        out = np.empty((n, self.heads, d))
        for head in range(self.heads):
            group = head // (self.heads // self.kv_heads)
            scores = self.cap(scale * (q[:, head] @ k[:, group].T), "attn_logit_softcapping")
            scores = np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights @ v[:, group] / weights.sum(axis=1, keepdims=True)
        return self.linear(out.reshape(n, -1), at + "o_proj")

    def cap(self, x, key):
        cap = self.config.get(key)
        return x if cap is None else cap * np.tanh(x / cap)

    def feed_forward(self, x, layer):
        at = f"model.layers.{layer}."
        if self.family == "Mixtral":
            return np.array([self.experts(row, at + "block_sparse_moe.") for row in x])
        if self.family == "Phi3":
            gate, up = np.split(self.linear(x, at + "mlp.gate_up_proj"), 2, axis=1)
        else:
            gate, up = self.linear(x, at + "mlp.gate_proj"), self.linear(x, at + "mlp.up_proj")
        return self.linear(self.activation(gate) * up, at + "mlp.down_proj")

    def experts(self, x, at):
        """One row through the experts with the largest probabilities, which are scaled to one."""
        scores = self.linear(x, at + "gate")
        probability = np.exp(scores - scores.max())
        probability /= probability.sum()
        chosen = np.argsort(-probability)[:self.config["num_experts_per_tok"]]
        total = 0
        for e in chosen:
            w1, w2, w3 = (f"{at}experts.{e}.{name}" for name in ("w1", "w2", "w3"))
            answer = self.linear(self.activation(self.linear(x, w1)) * self.linear(x, w3), w2)
            total = total + probability[e] / probability[chosen].sum() * answer
        return total

    def logits(self, tokens):
        """All positions anew: [len(tokens)][vocab_size]."""
        embedding = self.weights["model.embed_tokens.weight"]
        x = embedding[tokens]
        if self.gemma:
            x = x * math.sqrt(self.config["hidden_size"])
        for layer in range(self.config["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            attended = self.attention(self.norm(x, at + "input_layernorm"), layer)
            if self.family in ("Gemma2", "Gemma3"):
                x = x + self.norm(attended, at + "post_attention_layernorm")
                fed = self.feed_forward(self.norm(x, at + "pre_feedforward_layernorm"), layer)
                x = x + self.norm(fed, at + "post_feedforward_layernorm")
            else:
                x = x + attended
                x = x + self.feed_forward(self.norm(x, at + "post_attention_layernorm"), layer)
        x = self.norm(x, "model.norm")
        logits = x @ self.weights.get("lm_head.weight", embedding).T
        return self.cap(logits, "final_logit_softcapping")


def llama3(plain, scaling):
    """Llama 3.1's scaling: by wavelengths, with a smooth part between two bounds."""
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    out = []
    for f in plain:
        wavelength = 2 * math.pi / f
        if wavelength < original / high:
            out.append(f)
        elif wavelength > original / low:
            out.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return np.array(out)


def yarn(plain, theta, dims, scaling):
    """YaRN's scaling: by the pair's number, and a factor on cosines and sines."""
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def pair(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(scaling.get("beta_fast", 32)), pair(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)

    def magnitude(by=1.0):
        return 0.1 * by * math.log(factor) + 1

    scale = magnitude()
    if "mscale" in scaling and "mscale_all_dim" in scaling:
        scale = magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    return plain / factor * ramp + plain * (1 - ramp), scale


# --- The weights ---

def shapes(c):
    """Every tensor of a checkpoint and its shape, in the order in which it is written."""
    family = c["architectures"][0].removesuffix("ForCausalLM")
    hidden, wide, vocabulary = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    d = c.get("head_dim") or hidden // c["num_attention_heads"]
    queries, keys = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        out[at + "input_layernorm.weight"] = (hidden,)
        if family == "Phi3":
            out[at + "self_attn.qkv_proj.weight"] = (queries + 2 * keys, hidden)
        else:
            for name, rows in (("q", queries), ("k", keys), ("v", keys)):
                out[f"{at}self_attn.{name}_proj.weight"] = (rows, hidden)
                if family == "Qwen2":
                    out[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        out[at + "self_attn.o_proj.weight"] = (hidden, queries)
        if family in ("Qwen3", "Gemma3"):
            out[at + "self_attn.q_norm.weight"] = out[at + "self_attn.k_norm.weight"] = (d,)
        out[at + "post_attention_layernorm.weight"] = (hidden,)
        if family in ("Gemma2", "Gemma3"):
            out[at + "pre_feedforward_layernorm.weight"] = (hidden,)
            out[at + "post_feedforward_layernorm.weight"] = (hidden,)
        if family == "Mixtral":
            out[at + "block_sparse_moe.gate.weight"] = (c["num_local_experts"], hidden)
            for e in range(c["num_local_experts"]):
                for name in ("w1", "w2", "w3"):
                    shape = (hidden, wide) if name == "w2" else (wide, hidden)
                    out[f"{at}block_sparse_moe.experts.{e}.{name}.weight"] = shape
        elif family == "Phi3":
            out[at + "mlp.gate_up_proj.weight"] = (2 * wide, hidden)
            out[at + "mlp.down_proj.weight"] = (hidden, wide)
        else:
            out[at + "mlp.gate_proj.weight"] = out[at + "mlp.up_proj.weight"] = (wide, hidden)
            out[at + "mlp.down_proj.weight"] = (hidden, wide)
    out["model.norm.weight"] = (hidden,)
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (vocabulary, hidden)
    return out


def draw(c, seed):
    """Random weights as bytes of the stored type and as the float64 values that these mean."""
    random = np.random.Generator(np.random.PCG64(seed))
    gemma = c["architectures"][0].startswith("Gemma")
    raw, values = {}, {}
    for name, shape in shapes(c).items():
        x = random.standard_normal(shape)
        if "norm" in name:
            x = 0.2 * x + (0 if gemma else 1)
        elif name.endswith(".bias"):
            x = 0.5 * x
        elif name == "model.embed_tokens.weight":
            x = x / (math.sqrt(c["hidden_size"]) if gemma else 1)
        else:
            x = 1.6 * x / math.sqrt(shape[1])
        raw[name], values[name] = store(x, c["torch_dtype"])
    return raw, values


def store(x, dtype):
    x = x.astype(np.float32)
    if dtype == "bfloat16":
        bits = x.view(np.uint32)
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        return bits.astype("<u2").tobytes(), (bits << 16).view(np.float32).astype(np.float64)
    if dtype == "float16":
        half = x.astype("<f2")
        return half.tobytes(), half.astype(np.float64)
    return x.astype("<f4").tobytes(), x.astype(np.float64)


# --- The files ---

def generate(reference, seed):
    """The golden cases, and the closest greedy choice among them."""
    random = np.random.Generator(np.random.PCG64([seed, 1]))
    cases, gap = [], math.inf
    for length in PROMPTS:
        prompt = random.integers(0, reference.config["vocab_size"], length).tolist()
        tokens, first = list(prompt), None
        for _ in range(STEPS):
            last = reference.logits(tokens)[-1]
            first = last if first is None else first
            best = np.sort(last)
            gap = min(gap, best[-1] - best[-2])
            tokens.append(int(last.argmax()))
        cases.append(dict(prompt=f"{length} random tokens", prompt_ids=prompt,
                          greedy_ids=tokens[length:],
                          logits_last_prompt_pos=[round(x, 6) for x in first.tolist()],
                          logits_last_step=[round(x, 6) for x in last.tolist()]))
    return cases, gap


def write(name):
    c, sinks = MODELS[name]
    c = {key: value for key, value in c.items() if value is not None or key == "sliding_window"}
    for seed in range(1000):
        raw, values = draw(c, seed)
        cases, gap = generate(Reference(c, values, sinks), seed)
        if gap >= MIN_GAP:
            break
    else:
        sys.exit(f"{name}: no seed gives a gap of {MIN_GAP}")
    folder = os.path.join(HERE, "random", name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    size = write_safetensors(os.path.join(folder, "model.safetensors"), c, raw)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        f.write(f'{{"sinks":{sinks},"min_top2_gap":{gap:.6f},"cases":[\n{lines}]}}\n')
    print(f"{name}: seed {seed}, {size} bytes of weights, smallest gap {gap:.4f}")


def write_safetensors(path, c, raw):
    dtype = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[c["torch_dtype"]]
    header, at = {}, 0
    for name, shape in shapes(c).items():
        end = at + len(raw[name])
        header[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[at, end])
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(raw[name] for name in header))
    return at


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        write(wanted)
