#!/usr/bin/env python3
"""Turns a GGUF file of a Llama or of Gemma 3 into a folder in the layout of Hugging Face, with every
weight dequantised to F32.

Usage: python3 hf_from_gguf.py IN.gguf OUT            (needs: pip install numpy gguf)

Written: config.json, model.safetensors, and, where the file holds a byte-level BPE vocabulary,
tokenizer.json and tokenizer_config.json with the chat template. It serves the tests of real models
(ENGINE_REAL_MODELS, see real_test.go); the engine itself needs no conversion of a folder.
"""

import json
import os
import struct
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
NORMS = {
    "llama": {"ffn_norm": "post_attention_layernorm"},
    "gemma3": {"post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm",
               "post_ffw_norm": "post_feedforward_layernorm"},
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


class Source:
    """A GGUF file and its metadata."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.architecture = self.get("general.architecture")
        if self.architecture not in NORMS:
            sys.exit(f"{path}: architecture {self.architecture!r}; known are {sorted(NORMS)}")

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def own(self, key, default=None):
        return self.get(f"{self.architecture}.{key}", default)

    def name(self, name):
        """The Hugging Face name of a tensor."""
        parts = name.split(".")
        if parts[0] != "blk":
            return OUTSIDE[parts[0]] + ".weight"
        inside = {**LAYER, **NORMS[self.architecture]}[parts[2]]
        return f"model.layers.{parts[1]}.{inside}.weight"

    def values(self, tensor):
        """A tensor in float32, in the layout of Hugging Face."""
        x = dequantize(tensor.data, tensor.tensor_type)
        x = x.reshape([int(n) for n in reversed(tensor.shape)]).astype(np.float32)
        heads = {"attn_q": self.own("attention.head_count"),
                 "attn_k": self.own("attention.head_count_kv")}
        kind = tensor.name.split(".")[-2]
        if self.architecture == "llama" and kind in heads:
            # The file turns neighbours; Hugging Face turns the two halves of a head.
            n = heads[kind]
            x = x.reshape(n, len(x) // n // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
        if self.architecture == "gemma3" and kind.endswith("norm"):
            x = x - np.float32(1)  # The file holds 1+w.
        return x


def config(source):
    heads = source.own("attention.head_count")
    width = source.own("embedding_length")
    out = dict(
        hidden_size=width, intermediate_size=source.own("feed_forward_length"),
        num_hidden_layers=source.own("block_count"), num_attention_heads=heads,
        num_key_value_heads=source.own("attention.head_count_kv", heads),
        head_dim=source.own("attention.key_length", width // heads),
        max_position_embeddings=source.own("context_length"),
        rms_norm_eps=round(source.own("attention.layer_norm_rms_epsilon"), 12),
        rope_theta=source.own("rope.freq_base", 10000.0),
        tie_word_embeddings=all(t.name != "output.weight" for t in source.reader.tensors),
        vocab_size=int(next(t for t in source.reader.tensors if t.name == "token_embd.weight").shape[1]),
        bos_token_id=source.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=source.get("tokenizer.ggml.eos_token_id"), torch_dtype="float32")
    if source.architecture == "llama":
        return dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", **out)
    return dict(architectures=["Gemma3ForCausalLM"], model_type="gemma3_text",
                hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=out["head_dim"],
                sliding_window=source.own("attention.sliding_window"), sliding_window_pattern=6,
                rope_local_base_freq=10000.0, **out)


def write_weights(source, path):
    header, at = {}, 0
    for tensor in source.reader.tensors:
        end = at + 4 * int(tensor.n_elements)
        shape = [int(n) for n in reversed(tensor.shape)]
        header[source.name(tensor.name)] = dict(dtype="F32", shape=shape, data_offsets=[at, end])
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in source.reader.tensors:
            f.write(source.values(tensor).astype("<f4").tobytes())


def tokenizer(source):
    """A byte-level BPE vocabulary as tokenizer.json has it; of SmolLM2, which cuts digits apart."""
    tokens, kinds = source.get("tokenizer.ggml.tokens"), source.get("tokenizer.ggml.token_type")
    control = 3
    added = [dict(id=i, content=token, single_word=False, lstrip=False, rstrip=False,
                  normalized=False, special=True)
             for i, token in enumerate(tokens) if kinds[i] == control]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    digits = dict(type="Digits", individual_digits=True)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                 end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                 vocab={token: i for i, token in enumerate(tokens)},
                 merges=source.get("tokenizer.ggml.merges"))
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=dict(type="Sequence", pretokenizers=[digits, level]),
                post_processor=None, decoder=level, model=model)


def main(path, folder):
    source = Source(path)
    os.makedirs(folder, exist_ok=True)

    def write(name, value):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f, ensure_ascii=False, indent=1)

    write("config.json", config(source))
    write_weights(source, os.path.join(folder, "model.safetensors"))
    if source.get("tokenizer.ggml.pre") == "smollm":
        tokens = source.get("tokenizer.ggml.tokens")
        write("tokenizer.json", tokenizer(source))
        write("tokenizer_config.json", dict(
            chat_template=source.get("tokenizer.chat_template"), add_bos_token=False,
            bos_token=tokens[source.get("tokenizer.ggml.bos_token_id")],
            eos_token=tokens[source.get("tokenizer.ggml.eos_token_id")]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
