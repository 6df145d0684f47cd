/* Divides by zero at a token budget of 700, in a function of its own, and keeps a sum in a
   global between steps: for tests of replay and of the place of a trap. Built by

     clang-14 --target=wasm32 -std=c11 -O1 -g -ffreestanding -nostdlib -fdebug-compilation-dir=. \
       -Wl,--no-entry -Wl,--stack-first -Wl,-z,stack-size=16384 lines.c -o lines.wasm */
#define EXPORT(name) __attribute__((export_name(name)))
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

static const char name[] = "lines", version[] = "1.0.0";
static struct {
    char magic[4];
    u16 size, minor, oldest, state;
    u32 flags;
    u64 required, optional;
    const char *name;
    u32 name_len;
    const char *version;
    u32 version_len, record_bytes, header_bytes;
    u64 reserved;
} about = {{'P', 'O', 'L', '1'}, 64, 0, 0, 0, 0x32, 0, 0x201, name, 5, version, 5, 128, 192, 0};

static char arena[1 << 19] __attribute__((aligned(16)));
static u32 used;
u32 sum;

EXPORT("pol_abi_v1") void *pol_abi_v1(void) { return &about; }

EXPORT("pol_buffer") void *pol_buffer(int kind, u32 bytes) {
    if (kind > 4 || used + bytes > sizeof arena) return 0;
    void *at = arena + used;
    used += (bytes + 15) & ~15u;
    return at;
}

EXPORT("pol_init") int pol_init(u32 bytes) {
    (void)bytes;
    return 0;
}

__attribute__((noinline)) static u32 divide(u32 by) {
    return 1000 / by;
}

/* The sum of all budgets: a step after many cannot be decided without those before. */
EXPORT("pol_decide") int pol_decide(u32 *header) {
    u32 budget = header[17];
    sum += budget;
    if (budget == 701 && sum > 100000) return -(int)(1000 + sum % 1000);
    u32 *out = (u32 *)header[24], *record = (u32 *)header[8];
    if (!header[6] || !header[23] || !record[8]) return 0;
    out[0] = 0;
    out[1] = divide(budget == 700 ? 0 : budget | 1);
    out[2] = record[0];
    out[3] = 3 | sum << 16;
    return 1;
}
