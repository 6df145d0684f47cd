//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* priority: the highest priority first; what waits rises with time; who is much more important than a running
 * request may take its place.
 *
 * All requests age at one rate, so that arrival - priority * aging ranks alike at every time, and only what changed
 * needs a new place. A preemption is bounded on every side: by the gap between the two, by the time the victim has
 * held its pages, by how often it was preempted before, by the number in one step; and it is ordered only
 * when it lets the other one in. */
#include "pol.h"

enum { REASON_OUTRANKED = 1, REASON_MADE_ROOM = 2, REASON_NO_ROOM = 3 };

static pol_order queue;   /* what has prompt to compute, the most important first */
static pol_order running; /* what holds pages and may lose them, the least important first */
static uint64_t *owner;   /* by slot: the id that held pages when it was seen last, 0 none */
static int64_t *since;    /* by slot: since when */
static uint8_t *listed;   /* by slot: named in this step's answer */

static int64_t aging_ms, min_run_ns;
static uint32_t gap, max_times, per_step;
static int may_preempt;

static int by_priority(const pol_record *r, pol_key *key) {
    key->first = -(int64_t)r->priority;
    key->second = r->arrival_ns;
    if (aging_ms > 0) key->first = key->first * aging_ms + r->arrival_ns / 1000000;
    key->id = r->id;
    return pol_prefills(r);
}

/* The youngest first among equals: it has the least to lose. */
static int by_loss(const pol_record *r, pol_key *key) {
    key->first = r->priority;
    key->second = -(r->arrival_ns / 1000000);
    key->id = ~r->id;
    return (r->state & (POL_STATE_RUNNING | POL_STATE_PINNED | POL_STATE_CANCEL_PENDING)) == POL_STATE_RUNNING &&
           r->preempt_count < max_times;
}

static int init(pol_config *config, uint32_t slots) {
    aging_ms = pol_config_int(config, "aging_s", 0, 0, 86400) * 1000;
    gap = (uint32_t)pol_config_int(config, "preempt_gap", 1, 0, 1000000);
    max_times = (uint32_t)pol_config_int(config, "max_preempts", 2, 0, 1000);
    per_step = (uint32_t)pol_config_int(config, "preempts_per_step", 1, 1, 64);
    min_run_ns = pol_config_int(config, "min_run_ms", 100, 0, 600000) * 1000000;
    may_preempt = gap > 0 && (pol_granted() & POL_CAP_PREEMPT) != 0;
    owner = (uint64_t *)pol_alloc((size_t)slots * 8);
    since = (int64_t *)pol_alloc((size_t)slots * 8);
    listed = (uint8_t *)pol_alloc(slots);
    if (!owner || !since || !listed) return pol_fail(POL_CODE_OUT_OF_MEMORY, "no memory for all slots");
    int code = pol_order_init(&queue, slots);
    return code < 0 ? code : pol_order_init(&running, slots);
}

/* note_starts keeps since when each request holds its pages. */
static void note_starts(const pol_step *step) {
    for (uint32_t i = 0; i < step->header->n_changed; i++) {
        uint32_t slot = step->changed[i];
        const pol_record *r = pol_at(step, slot);
        uint64_t id = r->state & POL_STATE_RUNNING ? r->id : 0;
        if (id && id != owner[slot]) since[slot] = step->header->now_ns;
        owner[slot] = id;
    }
}

/* room is what an admission still finds in this step. */
typedef struct {
    pol_pages pages;
    uint32_t seats, admissions;
} room;

static uint32_t victims_left;
static int seats_bind; /* the host admits as many as there are seats: a seat won is an admission won */

static room room_of(const pol_header *h) {
    room now;
    now.pages = pol_pages_of(h);
    now.seats = h->max_seqs > h->n_running ? h->max_seqs - h->n_running : 0;
    now.admissions = h->max_admit;
    seats_bind = h->max_admit >= now.seats;
    return now;
}

/* lets_in says whether a waiting request would be admitted with its next chunk, and takes its place if so. */
static int lets_in(room *now, const pol_record *r, uint32_t tokens) {
    if (now->seats == 0 || now->admissions == 0 || !pol_pages_take(&now->pages, r, tokens)) return 0;
    now->seats--;
    now->admissions--;
    return 1;
}

/* win takes over what a preempted request gives: its seat, its pages, and the page kept free for it. */
static void win(room *now, const pol_record *v) {
    now->seats++;
    now->admissions += (uint32_t)seats_bind;
    now->pages.free += v->pages_held;
    now->pages.running -= now->pages.running > 0;
    now->pages.reserve -= now->pages.reserve > 0;
}

/* make_room preempts what r outranks until r fits. It orders nothing if that does not suffice. */
static int make_room(const pol_step *step, pol_out *out, room *now, const pol_record *r, uint32_t tokens) {
    uint32_t begin = out->len;
    room then = *now;
    for (uint32_t i = 0; i < running.len && out->len - begin < victims_left; i++) {
        uint32_t slot = running.slots[i];
        const pol_record *v = pol_at(step, slot);
        if ((int64_t)r->priority - v->priority < (int64_t)gap) break;
        if (listed[slot] || step->header->now_ns - since[slot] < min_run_ns) continue;
        if (out->len + 1 >= out->cap) break; /* r's own entry must fit behind */
        pol_preempt(out, slot, v, REASON_OUTRANKED);
        win(&then, v);
        if (!lets_in(&then, r, tokens)) continue;
        for (uint32_t j = begin; j < out->len; j++) listed[out->items[j].slot] = 1;
        victims_left -= out->len - begin;
        *now = then;
        return 1;
    }
    out->len = begin;
    return 0;
}

/* run_all lists what runs, the most important first. Once somebody is not let in, nobody behind it is: small
 * requests would take its pages for ever. */
static void run_all(const pol_step *step, pol_out *out) {
    pol_chunks chunks = pol_chunks_of(step->header);
    room now = room_of(step->header);
    int closed = 0;
    for (uint32_t i = 0; i < queue.len; i++) {
        uint32_t slot = queue.slots[i];
        const pol_record *r = pol_at(step, slot);
        int waits = (r->state & POL_STATE_RUNNING) == 0;
        if ((waits & closed) | listed[slot]) continue;
        pol_chunks before = chunks;
        uint32_t tokens = pol_chunk(&chunks, r->remaining_prefill);
        uint16_t reason = 0;
        if (tokens == 0) break;
        if (!waits) pol_pages_take(&now.pages, r, tokens);
        else if (!lets_in(&now, r, tokens)) {
            closed = !make_room(step, out, &now, r, tokens);
            if (closed) chunks = before; /* its tokens are others' */
            reason = closed ? REASON_NO_ROOM : REASON_MADE_ROOM;
        }
        /* The host has the last word: it is asked even where no room is expected. */
        if (!pol_add(out, slot, r, POL_ACTION_RUN, tokens, reason)) break;
        listed[slot] = 1;
    }
}

static int decide(const pol_step *step, pol_out *out) {
    int code = pol_order_update(&queue, step, by_priority);
    if (code < 0) return code;
    victims_left = 0;
    if (may_preempt) {
        if ((code = pol_order_update(&running, step, by_loss)) < 0) return code;
        note_starts(step);
        victims_left = per_step;
    }
    run_all(step, out);
    for (uint32_t i = 0; i < out->len; i++) listed[out->items[i].slot] = 0;
    return 0;
}

POL_POLICY_WITH("priority", "1.0.0", init, decide, POL_DEFAULT_FLAGS, 0, POL_DEFAULT_CAPS | POL_CAP_PREEMPT)
