//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* fcfs: first come, first served. The rule is SPEC.md, "The rule of fcfs", and must stay equal to the
 * engine's native one, which decides when a module fails. */
#include "pol.h"

static pol_order waiting; /* what has prompt to compute, by arrival */

static int by_arrival(const pol_record *r, pol_key *key) {
    key->first = r->arrival_ns;
    key->second = 0;
    key->id = r->id;
    return pol_prefills(r);
}

static int init(pol_config *config, uint32_t slots) {
    (void)config; /* no settings */
    return pol_order_init(&waiting, slots);
}

static int decide(const pol_step *step, pol_out *out) {
    int code = pol_order_update(&waiting, step, by_arrival);
    if (code < 0) return code;
    pol_chunks chunks = pol_chunks_of(step->header);
    for (uint32_t i = 0; i < waiting.len; i++) {
        const pol_record *r = pol_at(step, waiting.slots[i]);
        uint32_t tokens = pol_chunk(&chunks, r->remaining_prefill);
        if (tokens == 0 || !pol_run(out, waiting.slots[i], r, tokens)) break;
    }
    return 0;
}

POL_POLICY("fcfs", "1.0.0", init, decide)
