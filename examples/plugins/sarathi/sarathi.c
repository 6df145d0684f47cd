//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* sarathi: a fixed number of tokens a step. The running streams' tokens come first, the prompts that are begun go on
 * with what is left, and only then a new one starts: stall-free batching of Sarathi-Serve (OSDI 2024), with
 * decodes charged by the host. A step of bounded work bounds the gap between two tokens of a stream. */
#include "pol.h"

static pol_order prompts; /* those begun first, each part by arrival */
static uint32_t budget, least;

static int begun_first(const pol_record *r, pol_key *key) {
    key->first = (r->state & POL_STATE_RUNNING) == 0;
    key->second = r->arrival_ns;
    key->id = r->id;
    return pol_prefills(r);
}

static int init(pol_config *config, uint32_t slots) {
    budget = (uint32_t)pol_config_int(config, "token_budget", 512, 1, 1000000);
    least = (uint32_t)pol_config_int(config, "min_prefill", 32, 1, 1000000);
    return pol_order_init(&prompts, slots);
}

/* prefill_share is what a step has for prompts: the policy's budget less the decodes, not below the least, in whole
 * units of chunk_align so that no chunk is rounded away, and within the host's own budget. */
static uint32_t prefill_share(const pol_header *h, const pol_chunks *chunks) {
    uint64_t share = budget > h->decode_tokens ? budget - h->decode_tokens : 0;
    if (share < least) share = least;
    if (chunks->align > 1) share = (share + chunks->align - 1) / chunks->align * chunks->align;
    return share < chunks->left ? (uint32_t)share : chunks->left;
}

/* cut sets the chunk lengths of another policy's answer, in its order. What the share does not reach gets a single
 * token: which requests run is not this policy's to say then. */
static int cut(const pol_step *step, pol_out *out, pol_chunks *chunks) {
    for (uint32_t i = 0; i < out->len; i++) {
        pol_decision *d = &out->items[i];
        const pol_record *r = pol_at(step, d->slot);
        if (d->action != POL_ACTION_RUN || r->state & POL_STATE_DECODING || !r->remaining_prefill) continue;
        uint32_t tokens = pol_chunk(chunks, r->remaining_prefill);
        d->tokens = tokens ? tokens : 1;
    }
    return 0;
}

static int decide(const pol_step *step, pol_out *out) {
    int code = pol_order_update(&prompts, step, begun_first);
    if (code < 0) return code;
    pol_chunks chunks = pol_chunks_of(step->header);
    chunks.left = prefill_share(step->header, &chunks);
    if (pol_preset(step, out)) return cut(step, out, &chunks);
    for (uint32_t i = 0; i < prompts.len; i++) {
        const pol_record *r = pol_at(step, prompts.slots[i]);
        uint32_t tokens = pol_chunk(&chunks, r->remaining_prefill);
        if (tokens == 0 || !pol_run(out, prompts.slots[i], r, tokens)) break;
    }
    return 0;
}

POL_POLICY("sarathi", "1.0.0", init, decide)
