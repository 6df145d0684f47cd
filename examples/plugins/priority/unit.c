//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* Native tests of priority: it includes the policy and looks inside. */
#include "priority.c"

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

enum { SLOTS = 30 };
static pol_record table[SLOTS];

static void fill(pol_header *h, int64_t round) {
    h->n_running = 0;
    for (uint32_t s = 0; s < SLOTS; s++) {
        pol_record *r = &table[s];
        memset(r, 0, sizeof *r);
        r->id = (uint64_t)round * SLOTS + s + 1, r->arrival_ns = below(100), r->priority = (int32_t)below(6);
        r->state = POL_STATE_LIVE, r->prompt_tokens = r->remaining_prefill = 1 + below(200);
        r->pages_needed = (r->prompt_tokens + 15) / 16;
        if (below(2)) continue;
        h->n_running++;
        r->state |= POL_STATE_RUNNING | (below(4) ? 0 : POL_STATE_PINNED);
        r->pages_held = 1 + below(12), r->preempt_count = below(4);
        if (below(3)) r->state |= POL_STATE_DECODING, r->remaining_prefill = r->pages_needed = 0;
    }
}

/* Whoever loses its place may lose it, and is outranked by the request that is let in right behind. */
static void test_victims(void) {
    pol_config config;
    memset(&config, 0, sizeof config);
    config.text = "{\"min_run_ms\":0,\"preempt_gap\":2,\"max_preempts\":3,\"preempts_per_step\":3}";
    config.len = (uint32_t)strlen(config.text);
    check(init(&config, SLOTS) == 0, "init", 0);
    may_preempt = 1;
    uint32_t preempted = 0, changed[SLOTS];
    for (uint32_t s = 0; s < SLOTS; s++) changed[s] = s;
    for (int64_t round = 0; round < 20000; round++) {
        pol_header h = {0};
        pol_decision items[SLOTS];
        fill(&h, round);
        h.flags = POL_FLAG_RESYNC, h.n_changed = h.n_slots = SLOTS, h.decisions_cap = 1 + below(SLOTS);
        h.token_budget = 1 + below(600), h.chunk_max = 1 + below(300), h.page_tokens = 16, h.now_ns = round;
        h.free_pages = below(60), h.reserve_pages = h.n_running + below(4), h.max_seqs = h.n_running + below(3);
        h.max_admit = h.max_seqs - h.n_running;
        pol_step step = {&h, (const uint8_t *)table, changed, sizeof *table, 0, 0};
        pol_out out = {items, 0, h.decisions_cap};
        check(decide(&step, &out) == 0, "decide", round);
        uint32_t here = 0;
        for (uint32_t i = 0; i < out.len; i++) {
            const pol_record *v = &table[items[i].slot], *heir = 0;
            check(!listed[items[i].slot], "cleared", round);
            if (items[i].action == POL_ACTION_RUN) continue;
            for (uint32_t j = i + 1; j < out.len && !heir; j++)
                if (items[j].action == POL_ACTION_RUN) heir = &table[items[j].slot];
            check(heir && !(heir->state & POL_STATE_RUNNING) && heir->priority - v->priority >= 2, "outranked", round);
            check((v->state & (POL_STATE_RUNNING | POL_STATE_PINNED)) == POL_STATE_RUNNING, "may lose", round);
            check(v->preempt_count < 3, "lost before", round);
            here++;
        }
        check(here <= 3, "too many", round);
        preempted += here;
    }
    check(preempted > 1000, "hardly anybody loses a place", preempted);
}

int main(void) {
    test_victims();
    return 0;
}
