"""Trains the model that ships inside the binary and writes it as a Hugging Face folder.

Corpus    the King James Bible (public domain) as Debian's package bible-kjv-text 4.38 prints it
          with the command of bible-kjv: bible -f Gen1:1-Rev22:21. Verse numbers are dropped, a
          verse is a line, a chapter is a document. Every 25th chapter is held out.
Seed      --seed (1611). Sums over threads make a second run equal in quality, not in every bit.
Settings  the constants below; --steps and --minutes bound the run.

    apt-get install bible-kjv bible-kjv-text
    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python train.py --out folder --minutes 46

glibc gives large buffers back to the kernel after each use; told not to, a step takes half the time:
MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_ARENA_MAX=1.

A run that is stopped goes on from its last checkpoint (--checkpoint) when started again.
"""

import argparse
import json
import math
import os
import pickle
import re
import subprocess
import time

import numpy as np

DIM, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 192, 4, 6, 2, 32, 352
VOCAB, CONTEXT, EPS, THETA = 1024, 512, 1e-5, 10000.0
SPECIAL = ["<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>"]
BOS, EOS, SYSTEM, USER, ASSISTANT = range(5)
TOKENS_A_STEP = 4096  # 16 sequences of 256 or 8 of 512
LONG_SHARE = 0.2  # share of steps with sequences of 512, so that every position is trained
CHAT_SHARE = 0.12  # share of sequences made of chats instead of chapters
HELD_OUT = 25
MUON_LR, ADAM_LR, DECAY, WARMUP = 0.02, 0.003, 0.05, 100
SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "Answer in the words of the King James Bible.",
    "You are a kind and careful assistant. Be brief.",
    "Speak as a prophet of old.",
]
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


# --- corpus -------------------------------------------------------------------------------------

def read_chapters(path):
    """Returns the chapters, each a list of verses; path is the command's output, or empty to run it."""
    if path:
        with open(path, encoding="ascii") as f:
            text = f.read()
    else:
        text = subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], check=True, text=True,
                              capture_output=True).stdout
    chapters, last = [], None
    for line in text.splitlines():
        m = re.match(r"^([1-3]?[A-Za-z]+)(\d+):(\d+) (.*)$", line.strip())
        if not m:
            raise SystemExit(f"not a verse: {line!r}")
        book, chapter, verse, words = m.group(1), m.group(2), m.group(3), m.group(4)
        if (book, chapter) != last and verse == "1":
            chapters.append([])
        last = (book, chapter)
        chapters[-1].append(re.sub(r"\s+", " ", words).strip())
    return chapters


def split(chapters):
    held = [c for i, c in enumerate(chapters) if i % HELD_OUT == HELD_OUT - 1]
    return [c for i, c in enumerate(chapters) if i % HELD_OUT != HELD_OUT - 1], held


def train_tokenizer(chapters):
    """Byte-level BPE with the GPT-2 pattern; ids 0 to 4 are the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(("\n".join(c) for c in chapters), trainer)
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", BOS)])
    if tok.get_vocab_size() != VOCAB:
        raise SystemExit(f"vocabulary has {tok.get_vocab_size()} entries, want {VOCAB}")
    return tok


class Data:
    """Makes batches of token ids [rows, length+1]; every row begins with <s>."""

    def __init__(self, tok, chapters, seed):
        self.rng = np.random.default_rng(seed)
        self.encode = lambda s: tok.encode(s, add_special_tokens=False).ids
        self.newline = self.encode("\n")[0]
        self.chapters = chapters
        stream = []
        for c in chapters:
            stream += [BOS] + self.encode("\n".join(c)) + [EOS]
        self.stream = np.array(stream, np.int32)
        starts = (self.stream[:-1] == BOS) | (self.stream[:-1] == self.newline)
        self.starts = np.flatnonzero(starts) + 1  # of verses
        self.queue = {}

    def batch(self, length):
        rows = []
        for _ in range(TOKENS_A_STEP // length):
            chat = self.rng.random() < CHAT_SHARE
            rows.append(self.chat(length) if chat else self.window(length))
        return np.stack(rows)

    def window(self, length):
        """A piece of the running text from a verse's start; an epoch goes over all of it once."""
        if not self.queue.get(length):
            cuts = np.arange(self.rng.integers(length), len(self.stream) - 2 * length, length)
            at = self.starts[np.searchsorted(self.starts, cuts)]
            self.queue[length] = list(self.rng.permutation(np.unique(at)))
        at = self.queue[length].pop()
        return np.concatenate([[BOS], self.stream[at:at + length]]).astype(np.int32)

    def chat(self, length):
        """Chats in which the assistant goes on where the user stops, one after another."""
        ids = []
        while len(ids) < length + 1:
            verses = self.chapters[self.rng.integers(len(self.chapters))]
            at = int(self.rng.integers(max(1, len(verses) - 1)))
            ids.append(BOS)
            if self.rng.random() < 0.3:
                prompt = SYSTEM_PROMPTS[self.rng.integers(len(SYSTEM_PROMPTS))]
                ids += [SYSTEM] + self.encode(prompt) + [EOS]
            for _ in range(self.rng.integers(1, 4)):
                if at >= len(verses):
                    break
                ids, at = self.turn(ids, verses, at)
        return np.array(ids[:length + 1], np.int32)

    def turn(self, ids, verses, at):
        n = int(self.rng.integers(1, 4))
        words = verses[at].split(" ")
        cut = int(self.rng.integers(2, 8))
        if self.rng.random() < 0.5 and len(words) > cut:
            said, answer = " ".join(words[:cut]), [" ".join(words[cut:])] + verses[at + 1:at + n]
            at += n
        else:
            said, answer = verses[at], verses[at + 1:at + 1 + n]
            at += 1 + n
        if not answer:
            answer = ["Amen."]
        ids = ids + [USER] + self.encode(said) + [EOS]
        return ids + [ASSISTANT] + self.encode("\n".join(answer)) + [EOS], at


# --- model --------------------------------------------------------------------------------------

def init(seed):
    """Weights as [in, out], the layers stacked in front; residual outputs begin at zero."""
    rng = np.random.default_rng(seed)

    def w(n, m):
        return (rng.standard_normal((LAYERS, n, m)) * 0.6 / math.sqrt(n)).astype(np.float32)

    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "embed": (rng.standard_normal((VOCAB, DIM)) * 0.02).astype(np.float32),
        "q": w(DIM, q), "k": w(DIM, kv), "v": w(DIM, kv), "o": 0 * w(q, DIM),
        "gate": w(DIM, FFN), "up": w(DIM, FFN), "down": 0 * w(FFN, DIM),
        "norm1": np.ones((LAYERS, DIM), np.float32), "norm2": np.ones((LAYERS, DIM), np.float32),
        "norm": np.ones(DIM, np.float32),
    }


MATRICES = ["q", "k", "v", "o", "gate", "up", "down"]


def build():
    """Returns (losses, step), compiled."""
    import jax
    import jax.numpy as jnp

    def rms(x, w):
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * w

    def rope(x, cos, sin):
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def logits(p, ids):
        n, t = ids.shape
        angle = np.outer(np.arange(t), THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        cos = np.cos(angle).astype(np.float32)[None, :, None]
        sin = np.sin(angle).astype(np.float32)[None, :, None]
        mask = np.where(np.tri(t), 0, -1e9).astype(np.float32)
        x = p["embed"][ids]
        for i in range(LAYERS):
            h = rms(x, p["norm1"][i])
            q = rope((h @ p["q"][i]).reshape(n, t, HEADS, HEAD_DIM), cos, sin)
            k = rope((h @ p["k"][i]).reshape(n, t, KV_HEADS, HEAD_DIM), cos, sin)
            v = (h @ p["v"][i]).reshape(n, t, KV_HEADS, HEAD_DIM)
            group = HEADS // KV_HEADS
            q = q.reshape(n, t, KV_HEADS, group, HEAD_DIM).transpose(0, 2, 3, 1, 4)
            q = q.reshape(n, KV_HEADS, group * t, HEAD_DIM)
            k, v = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
            s = (q @ k).reshape(n, KV_HEADS, group, t, t) * HEAD_DIM ** -0.5 + mask
            s = jax.nn.softmax(s, -1).reshape(n, KV_HEADS, group * t, t) @ v
            s = s.reshape(n, KV_HEADS, group, t, HEAD_DIM).transpose(0, 3, 1, 2, 4)
            x = x + s.reshape(n, t, HEADS * HEAD_DIM) @ p["o"][i]
            h = rms(x, p["norm2"][i])
            x = x + (jax.nn.silu(h @ p["gate"][i]) * (h @ p["up"][i])) @ p["down"][i]
        return rms(x, p["norm"]) @ p["embed"].T

    def losses(p, rows):
        """Nats of every token after the first, [rows, length]."""
        out = logits(p, rows[:, :-1])
        picked = jnp.take_along_axis(out, rows[:, 1:, None], -1)[..., 0]
        return jax.nn.logsumexp(out, -1) - picked

    def orthogonal(g):
        """Newton-Schulz iteration of Muon (Jordan, 2024) over stacked matrices."""
        flip = g.shape[1] > g.shape[2]
        x = g.transpose(0, 2, 1) if flip else g
        x = x / (jnp.sqrt(jnp.sum(x * x, (1, 2), keepdims=True)) + 1e-7)
        for _ in range(5):
            a = x @ x.transpose(0, 2, 1)
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.transpose(0, 2, 1) if flip else x

    def update(p, g, m, v, n, scale):
        """Muon for the layers' matrices, AdamW for the embedding and the norms."""
        p2, m2, v2 = {}, {}, {}
        for k in p:
            if k in MATRICES:
                m2[k], v2[k] = 0.95 * m[k] + g[k], v[k]
                lr = MUON_LR * scale
                d = orthogonal(g[k] + 0.95 * m2[k]) * max(1, p[k].shape[2] / p[k].shape[1]) ** 0.5
                p2[k] = p[k] * (1 - lr * DECAY) - lr * d
                continue
            m2[k] = 0.9 * m[k] + 0.1 * g[k]
            v2[k] = 0.98 * v[k] + 0.02 * g[k] ** 2
            lr = ADAM_LR * scale
            d = m2[k] / (1 - 0.9 ** n) / (jnp.sqrt(v2[k] / (1 - 0.98 ** n)) + 1e-9)
            p2[k] = p[k] * (1 - lr * (DECAY if k == "embed" else 0)) - lr * d
        return p2, m2, v2

    @jax.jit
    def step(p, m, v, rows, n, scale):
        loss, g = jax.value_and_grad(lambda p: losses(p, rows).mean())(p)
        p, m, v = update(p, g, m, v, n, scale)
        return p, m, v, loss

    return jax.jit(losses), step


def bits_per_byte(losses, p, tok, chapters):
    """Held-out text in windows of 512 that overlap by half; what is scored had half a window before it,
    or the chapter's beginning. The end of a chapter is scored too, its token counting no byte."""
    nats = size = 0
    for c in chapters:
        text = "\n".join(c)
        ids = [BOS] + tok.encode(text, add_special_tokens=False).ids + [EOS]
        size += len(text.encode())
        done = 1
        while done < len(ids):
            begin = max(0, done - CONTEXT // 2)
            row = ids[begin:begin + CONTEXT + 1]
            end = begin + len(row)
            pad = row + [EOS] * (CONTEXT + 1 - len(row))
            nats += float(np.asarray(losses(p, np.array([pad], np.int32)))[0][done - begin - 1:end - begin - 1].sum())
            done = end
    return nats / math.log(2) / size


# --- export -------------------------------------------------------------------------------------

def bfloat16(x):
    """Rounds float32 to the nearest bfloat16, ties to even; returns the 16 bits."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def rounded(p):
    return {k: (bfloat16(v).astype(np.uint32) << 16).view(np.float32) for k, v in p.items()}


def tensors(p):
    out = {"model.embed_tokens.weight": p["embed"], "model.norm.weight": p["norm"]}
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj",
             "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
             "norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    for k, name in names.items():
        for i in range(LAYERS):
            out[f"model.layers.{i}.{name}.weight"] = p[k][i].T if p[k][i].ndim == 2 else p[k][i]
    return out


def write_safetensors(path, p):
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, x in sorted(tensors(p).items()):
        blob = bfloat16(x).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + b"".join(blobs))


def export(folder, tok, p):
    os.makedirs(folder, exist_ok=True)
    write_safetensors(f"{folder}/model.safetensors", p)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": DIM, "intermediate_size": FFN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS,
        "rope_theta": THETA, "rope_scaling": None, "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": BOS, "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
    }
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": True, "temperature": 0.7, "top_k": 40}
    chat = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "add_bos_token": True, "add_eos_token": False, "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE,
    }
    for name, value in [("config", config), ("generation_config", generation), ("tokenizer_config", chat)]:
        with open(f"{folder}/{name}.json", "w", encoding="utf-8") as f:
            json.dump(value, f, indent=2)
            f.write("\n")
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(json.loads(tok.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


# --- run ----------------------------------------------------------------------------------------

def scale_at(step, progress):
    """The learning rate's share: a linear warm-up, then a cosine from 1 to 0."""
    return min(1, (step + 1) / WARMUP) * 0.5 * (1 + math.cos(math.pi * min(1, progress)))


def save(path, state):
    with open(path + ".part", "wb") as f:
        pickle.dump(state, f)
    os.replace(path + ".part", path)


def train(args, data, losses, step_fn, report):
    p = init(args.seed)
    m = {k: np.zeros_like(x) for k, x in p.items()}
    v = {k: np.zeros_like(x) for k, x in p.items()}
    step, spent = 0, 0.0
    if os.path.exists(args.checkpoint):
        with open(args.checkpoint, "rb") as f:
            p, m, v, step, spent, data.rng, data.queue = pickle.load(f)
        print(f"going on from step {step}", flush=True)
    begin, mean, last = time.monotonic() - spent, None, time.monotonic()
    while True:
        spent = time.monotonic() - begin
        progress = max(step / args.steps, spent / 60 / args.minutes if args.minutes else 0)
        if progress >= 1:
            return p, step, spent
        length = 512 if data.rng.random() < LONG_SHARE else 256
        rows = data.batch(length)
        p, m, v, loss = step_fn(p, m, v, rows, np.float32(step + 1), np.float32(scale_at(step, progress)))
        loss = float(loss)
        mean = loss if mean is None else 0.95 * mean + 0.05 * loss
        step += 1
        if step % 20 == 0:
            print(f"step {step} progress {progress:.3f} loss {mean:.3f} seconds {spent:.0f}", flush=True)
        if time.monotonic() - last > 180:
            last = time.monotonic()
            host = [{k: np.asarray(x) for k, x in d.items()} for d in (p, m, v)]
            save(args.checkpoint, (*host, step, spent, data.rng, data.queue))
            report(host[0], step)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--corpus", default="", help="saved output of the bible command; empty: run it")
    a.add_argument("--out", required=True, help="folder to write")
    a.add_argument("--checkpoint", default="checkpoint.pickle")
    a.add_argument("--steps", type=int, default=5000)
    a.add_argument("--minutes", type=float, default=46, help="wall-clock bound; 0: none")
    a.add_argument("--seed", type=int, default=1611)
    args = a.parse_args()

    chapters, held = split(read_chapters(args.corpus))
    tok = train_tokenizer(chapters)
    data = Data(tok, chapters, args.seed)
    text = sum(len("\n".join(c)) for c in chapters)
    params = sum(x.size for x in init(args.seed).values())
    print(f"chapters {len(chapters)} + {len(held)} held out, bytes {text}, tokens {len(data.stream)}, "
          f"parameters {params}", flush=True)
    losses, step_fn = build()

    def report(p, step):
        print(f"step {step} held-out bits per byte {bits_per_byte(losses, p, tok, held[:12]):.3f} "
              "(12 chapters)", flush=True)

    p, step, spent = train(args, data, losses, step_fn, report)
    p = {k: np.asarray(x) for k, x in p.items()}
    export(args.out, tok, p)
    final = rounded(p)
    print(f"steps {step}, tokens seen {step * TOKENS_A_STEP}, minutes {spent / 60:.1f}")
    print(f"held-out bits per byte {bits_per_byte(losses, final, tok, held):.3f} as exported (BF16), "
          f"{bits_per_byte(losses, p, tok, held):.3f} in float32")
    print(f"training chapters' bits per byte {bits_per_byte(losses, final, tok, chapters[::HELD_OUT]):.3f}")


if __name__ == "__main__":
    main()
