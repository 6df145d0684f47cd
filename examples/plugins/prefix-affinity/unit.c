//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* Native tests of prefix-affinity: it includes the policy and looks inside. */
#include "prefix_affinity.c"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state_ = 42;

static uint32_t below(uint32_t n) { /* xorshift */
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (uint32_t)(state_ >> 32) % n;
}

static void check(int ok, const char *what, int64_t at) {
    if (ok) return;
    printf("FAIL %s at %lld\n", what, (long long)at);
    exit(1);
}

/* Only groups that were marked in this step are busy; hardly any is forgotten. */
static void test_busy(void) {
    uint32_t forgotten = 0;
    for (uint64_t step = 1; step < 500; step++) {
        uint64_t marked[100];
        for (uint32_t i = 0; i < 100; i++) mark_busy(marked[i] = (uint64_t)below(1u << 30) * 2 + 1, step);
        for (uint32_t i = 0; i < 100; i++) forgotten += !is_busy(marked[i], step);
        for (uint32_t i = 0; i < 100; i++) check(!is_busy((uint64_t)below(1u << 30) * 2, step), "not marked", i);
        check(!is_busy(marked[0], step + 1), "of another step", (int64_t)step);
    }
    check(forgotten < 50, "forgotten", forgotten);
}

enum { SLOTS = 40 };
static pol_record table[SLOTS];

/* With a group that never ends the oldest of the others gets its percent of the tokens. */
static void test_share(void) {
    pol_config config;
    memset(&config, 0, sizeof config);
    config.text = "{\"oldest_percent\":20,\"hold_tokens\":0}", config.len = (uint32_t)strlen(config.text);
    check(init(&config, SLOTS) == 0, "init", 0);
    pol_header h = {0};
    pol_decision items[SLOTS];
    uint32_t changed[SLOTS];
    uint64_t id = 0, all = 0, others = 0;
    h.token_budget = 500, h.chunk_max = 100, h.max_admit = 40, h.free_pages = 1u << 30, h.page_tokens = 16;
    h.n_slots = SLOTS, h.decisions_cap = SLOTS;
    for (int64_t turn = 0; turn < 4000; turn++) {
        uint32_t n = 0;
        for (uint32_t s = 0; s < SLOTS; s++) {
            if (table[s].remaining_prefill > 0) continue;
            memset(&table[s], 0, sizeof table[s]);
            table[s].id = ++id, table[s].state = POL_STATE_LIVE, table[s].arrival_ns = turn;
            table[s].prompt_tokens = table[s].remaining_prefill = 50 + below(200);
            table[s].prefix_hash = s % 2 ? 7 : 100 + id; /* one group, and many of one request each */
            if (s % 2) table[s].cached_tokens = 64, table[s].prompt_tokens += 64;
            changed[n++] = s;
        }
        h.step = (uint64_t)turn + 1, h.n_changed = n, h.flags = turn == 0 ? POL_FLAG_RESYNC : 0;
        pol_step step = {&h, (const uint8_t *)table, changed, sizeof *table, 0, 0};
        pol_out out = {items, 0, SLOTS};
        check(decide(&step, &out) == 0, "decide", turn);
        for (uint32_t i = 0; i < out.len; i++) {
            pol_record *r = &table[items[i].slot];
            r->remaining_prefill -= items[i].tokens; /* it is through, or waits again: nobody is begun */
            all += items[i].tokens;
            others += r->prefix_hash == 7 ? 0 : items[i].tokens;
        }
        for (uint32_t i = 0; i < out.len; i++) table[items[i].slot].remaining_prefill = 0;
    }
    double share = (double)others / (double)all;
    check(share > 0.17 && share < 0.23, "the oldest's percent", (int64_t)(share * 100));
}

int main(void) {
    test_busy();
    test_share();
    return 0;
}
