"""What torch gets out of the same GPU: products and attention of the shapes that the rates stage
measures, so that ours stand beside the same library's."""

import torch


def timed(f, repeat=20):
    """Seconds of one call, the mean of some after a few."""
    for _ in range(3):
        f()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeat):
        f()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeat


def main():
    make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
    for tokens in (512, 2048, 8192):
        for name, n, k in (("qkv", 6144, 4096), ("o", 4096, 4096), ("gate_up", 28672, 4096),
                           ("down", 4096, 14336)):
            x, w = make(tokens, k), make(n, k)
            seconds = timed(lambda: x @ w.T)
            print(f"torch {name} T={tokens}: {2 * tokens * n * k / seconds / 1e12:.0f} TFLOP/s")
        q, kv = make(1, 32, tokens, 128), make(1, 32, tokens, 128)
        seconds = timed(lambda: torch.nn.functional.scaled_dot_product_attention(
            q, kv, kv, is_causal=True))
        print(f"torch attention T={tokens}: "
              f"{2 * 32 * tokens * tokens * 128 / seconds / 1e12:.0f} TFLOP/s")


main()
