#!/usr/bin/env python3
"""Writes variants.json: small tokenizers with one setting changed each, and what Hugging Face's
`tokenizers` makes of a list of texts. The Go tests read it.

Usage:  pip install tokenizers==0.22.2
        python3 host/tokenizer/testdata/make_variants.py
(Version 0.23 gives added tokens that are looked for after normalization another name when it
decodes, and then does not know that they are special.)
"""
import copy
import json
import os

import tokenizers

from compare import valid_runs

TEXTS = ["", " ", "abc", " abc abc  abc", "Hello, world! 12345 it's\n\n ok", "a\u0301e\u0301 \u00e9 \ufb01 \u2460 \u212b",
         "\u1100\u1161\u11a8 \uac01", "q\u0307\u0323 \u0958", "\u0130stanbul ΑΣ", "  padded\t\n", "x<tool>y <tool> z",
         "a <mask> b<mask>", "word wordy sword word", "abc<s>abc</s> abc", "\u2581\u2581a \u2581b", "tab\there\r\n\r\nnew  \n x",
         "12 345 \u0663\u0664 \u00bd", "--a--b -- c--", "a.b,c;d!?", "naïve 你好 😀", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "HELLO World hELLo", "don't DON'T we'LL \u017f'\u017f", "<s><s>", "ab" * 40, "\ufffd\u0000"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def added(ident, content, **flags):
    token = {"id": ident, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    return {**token, **flags}


def byte_level():
    """All 256 byte characters and a few merges."""
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    names, n = {b: chr(b) for b in visible}, 0
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + n)
            n += 1
    vocab = {names[b]: b for b in range(256)}
    merges = [["a", "b"], ["ab", "c"], ["Ġ", "a"], ["Ġ", "Ġ"], ["l", "l"], ["h", "e"], ["Ġ", "w"], ["o", "r"],
              ["Ġw", "or"], ["a", "a"], ["aa", "aa"], ["1", "2"], ["Ċ", "Ċ"], ["'", "s"], ["-", "-"], ["Ã", "©"]]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges}
    n = len(vocab)
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(n, "<s>"), added(n + 1, "</s>"), added(n + 2, "<tool>", special=False),
                             added(n + 3, "<mask>")],
            "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False,
                                                  "trim_offsets": True, "use_regex": True},
            "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}, "model": model}


def sentence_piece():
    """Byte fallback, some characters, a few merges."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    for c in "▁abcdehilnorstw1é你,'-":
        vocab[c] = len(vocab)
    merges = [["▁", "a"], ["a", "b"], ["ab", "c"], ["▁", "abc"], ["▁", "▁"], ["l", "l"], ["h", "e"], ["a", "a"],
              ["aa", "aa"], ["▁", "w"], ["o", "r"], ["▁w", "or"], ["aaaa", "aaaa"], ["<0xE5>", "<0xA5>"]]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "vocab": vocab, "merges": merges}
    n = len(vocab)
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>"),
                             added(n, "<tool>", special=False), added(n + 1, "<mask>")],
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": model}


def split(pattern, how, invert=False):
    kind = "Regex" if len(pattern) > 2 else "String"
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": how, "invert": invert}


def sequence(name, *parts):
    return {"type": "Sequence", name: list(parts)}


def variants():
    """Yields (name, base, {top-level key: value}); "model." keys change the model."""
    bare = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    for base in ("byte", "piece"):
        yield "as it is", base, {}
        for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase"):
            yield form, base, {"normalizer": {"type": form}}
        yield "strip", base, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}
        yield "strip left", base, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}
        yield "replace regex", base, {"normalizer": {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "-"}}
        for flag in ("single_word", "lstrip", "rstrip", "normalized"):
            yield f"added {flag}", base, {"added": {flag: True}}
        yield "added lstrip and rstrip", base, {"added": {"lstrip": True, "rstrip": True}}
        yield "added normalized, lower case", base, {"added": {"normalized": True}, "normalizer": {"type": "Lowercase"}}
        yield "ignore merges", base, {"model.ignore_merges": True}
    for how in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            for pattern in ("-", r"[0-9]+|[,.!]"):
                split_first = sequence("pretokenizers", split(pattern, how, invert), bare)
                yield f"split {pattern} {how} {invert}", "byte", {"pre_tokenizer": split_first}
    yield "GPT-2 as a split", "byte", {"pre_tokenizer": sequence("pretokenizers", split(GPT2, "Isolated"), bare)}
    yield "tekken", "byte", {"pre_tokenizer": sequence("pretokenizers", split(TEKKEN, "Isolated"), bare)}
    yield "prefix space", "byte", {"pre_tokenizer": {**bare, "add_prefix_space": True, "use_regex": True}}
    for each in (False, True):
        digits = {"type": "Digits", "individual_digits": each}
        yield f"digits {each}", "byte", {"pre_tokenizer": sequence("pretokenizers", digits, {**bare, "use_regex": True})}
    for how in ("Isolated", "Removed", "Contiguous"):
        mark = {"type": "Punctuation", "behavior": how}
        yield f"punctuation {how}", "byte", {"pre_tokenizer": sequence("pretokenizers", mark, bare)}
    for scheme in ("always", "first", "never"):
        for words in (False, True):
            meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": words}
            yield f"metaspace {scheme} {words}", "piece", {"normalizer": None, "pre_tokenizer": meta, "decoder": meta}
    yield "no decoder", "piece", {"decoder": None}
    yield "no fallback", "piece", {"model.byte_fallback": False}
    yield "no fallback, no fuse", "piece", {"model.byte_fallback": False, "model.fuse_unk": False}
    yield "no unk", "piece", {"model.byte_fallback": False, "model.unk_token": None}
    yield "strip both ends", "piece", {"decoder": sequence(
        "decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": "▁", "start": 2, "stop": 1})}
    yield "strip tokens", "piece", {"decoder": sequence(
        "decoders", {"type": "Strip", "content": "▁", "start": 1, "stop": 0}, {"type": "Fuse"})}
    yield "replace behind fuse", "piece", {"decoder": sequence(
        "decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "▁a"}, "content": "_"})}
    around = {"type": "TemplateProcessing", "pair": [], "special_tokens": {
        "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "</s>", "type_id": 0}}]}
    around["pair"] = around["single"] + [{"Sequence": {"id": "B", "type_id": 1}}]
    yield "template", "piece", {"post_processor": around}


def decode(reference, ids, skip):
    """The decoded text; None where it is undefined or, byte runs not being UTF-8, not promised."""
    if not valid_runs(reference, ids):
        return None
    try:
        return reference.decode(ids, skip_special_tokens=skip)
    except BaseException:  # it panics where Strip's two ends meet
        return None


def apply(base, patch):
    document = copy.deepcopy(base)
    for key, value in patch.items():
        if key == "added":
            for token in document["added_tokens"][-2:]:
                token.update(value)
        elif key.startswith("model."):
            document["model"][key[6:]] = value
        else:
            document[key] = value
    return document


def main():
    bases = {"byte": byte_level(), "piece": sentence_piece()}
    cases = []
    for name, base, patch in variants():
        document = apply(bases[base], patch)
        reference = tokenizers.Tokenizer.from_str(json.dumps(document))
        results = []
        for text in TEXTS:
            ids = reference.encode(text, add_special_tokens=False).ids
            reference.encode_special_tokens = True
            plain = reference.encode(text, add_special_tokens=False).ids
            reference.encode_special_tokens = False
            results.append([ids, reference.encode(text).ids, plain, decode(reference, ids, False),
                            decode(reference, ids, True)])
        cases.append({"name": name, "base": base, "document": {
            k: v for k, v in document.items() if v != bases[base][k] and k != "model"},
            "model": {k[6:]: v for k, v in patch.items() if k.startswith("model.")}, "results": results})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "variants.json")
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps({"reference": f"tokenizers {tokenizers.__version__}", "bases": bases, "texts": TEXTS},
                             ensure_ascii=False)[:-1])
        out.write(', "cases": [\n' + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":"))
                                                for c in cases) + "\n]}\n")


if __name__ == "__main__":
    main()
