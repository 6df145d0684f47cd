//go:build ignore
// (For the Go tests in this folder: this file is not theirs to compile.)

/* prefix-affinity: prompts that start alike run one after the other, while their common start is cached; the
 * oldest request is served with a fixed share of the tokens whatever it starts with.
 *
 * It is k-LPM (arXiv 2502.04677: the oldest in turn with longest-prefix picks) with the turn counted in
 * tokens: each token computed gives the oldest request a claim to oldest_percent of one, and a pick of the oldest pays
 * for itself, as in deficit round robin and DLPM (arXiv 2501.14312). So a share of the engine always goes by arrival.
 *
 * Of a group whose start nobody has computed yet one goes ahead and the others wait for it, instead of computing
 * the same tokens side by side. */
#include "pol.h"

enum { REASON_OLDEST = 1, REASON_GROUP = 2, REASON_CACHED = 3 };

/* swept is an order that is built up over some steps after a resync: sorting everything three times would take more
 * fuel than a step has. What it does not hold yet is found by age. */
typedef struct {
    pol_order order;
    uint32_t upto; /* slots below are in */
} swept;

enum { SWEEP = 64 }; /* slots in a step */

static pol_order by_age;
static swept by_match, by_group;
static uint32_t *list; /* scratch: the changed list of a swept order */
static int64_t percent;
static uint32_t hold_tokens;
static int64_t claim;   /* of the oldest: hundredths of a token, at most one full step */
static uint64_t hot;    /* the group that runs now: prefix_hash of the last pick by affinity, 0 none */
static uint8_t *listed; /* by slot: named in this step's answer */

static int age(const pol_record *r, pol_key *key) {
    key->first = r->arrival_ns;
    key->second = 0;
    key->id = r->id;
    return pol_prefills(r);
}

/* Those begun first: what they compute is cached for the others. */
static int match(const pol_record *r, pol_key *key) {
    key->first = r->state & POL_STATE_RUNNING ? INT64_MIN : -(int64_t)r->cached_tokens;
    key->second = r->arrival_ns;
    key->id = r->id;
    return pol_prefills(r);
}

static int group(const pol_record *r, pol_key *key) {
    key->first = (int64_t)r->prefix_hash;
    key->second = r->arrival_ns;
    key->id = r->id;
    return r->prefix_hash != 0 && pol_prefills(r);
}

static int init(pol_config *config, uint32_t slots) {
    percent = pol_config_int(config, "oldest_percent", 25, 1, 100);
    hold_tokens = (uint32_t)pol_config_int(config, "hold_tokens", 1024, 0, 10000000);
    listed = (uint8_t *)pol_alloc(slots);
    list = (uint32_t *)pol_alloc(((size_t)slots + SWEEP) * 4);
    if (!listed || !list) return pol_fail(POL_CODE_OUT_OF_MEMORY, "no memory for all slots");
    int code = pol_order_init(&by_age, slots);
    if (code == 0) code = pol_order_init(&by_match.order, slots);
    return code < 0 ? code : pol_order_init(&by_group.order, slots);
}

/* sweep follows the changed list as far as the order goes, and takes in the next slots. */
static int sweep(swept *s, const pol_step *step, pol_key_of key_of) {
    const pol_header *h = step->header;
    pol_header header = *h;
    pol_step part = *step;
    uint32_t n = 0;
    if (h->flags & POL_FLAG_RESYNC) s->upto = 0;
    for (uint32_t i = 0; i < h->n_changed && step->changed[i] < s->upto; i++) list[n++] = step->changed[i];
    for (uint32_t i = 0; i < SWEEP && s->upto < h->n_slots; i++) list[n++] = s->upto++;
    header.n_changed = n;
    part.header = &header;
    part.changed = list;
    return pol_order_update(&s->order, &part, key_of);
}

/* Groups whose common start is being computed: a table of open addresses, new in each step. A full
 * neighbourhood forgets: then the start is computed twice. */
enum { GROUPS = 1024, TRIES = 8 };
static struct {
    uint64_t hash, step;
} busy[GROUPS];

static uint32_t home(uint64_t hash) { return (uint32_t)((hash * 0x9E3779B97F4A7C15u) >> 54); }

static void mark_busy(uint64_t hash, uint64_t step) {
    for (uint32_t i = 0, at = home(hash); i < TRIES; i++, at = (at + 1) % GROUPS) {
        if (busy[at].step == step && busy[at].hash != hash) continue;
        busy[at].hash = hash;
        busy[at].step = step;
        return;
    }
}

static int is_busy(uint64_t hash, uint64_t step) {
    for (uint32_t i = 0, at = home(hash); i < TRIES && busy[at].step == step; i++, at = (at + 1) % GROUPS)
        if (busy[at].hash == hash) return 1;
    return 0;
}

static uint32_t done(const pol_record *r) {
    return r->prompt_tokens > r->remaining_prefill ? r->prompt_tokens - r->remaining_prefill : 0;
}

/* held says that a request waits for another one of its group, which computes their common start. */
static int held(const pol_step *step, const pol_record *r) {
    return (r->state & POL_STATE_RUNNING) == 0 && r->prefix_hash != 0 && done(r) < hold_tokens &&
           is_busy(r->prefix_hash, step->header->step);
}

/* cursor walks one order from a place on. */
typedef struct {
    const pol_order *order;
    uint32_t at, patience; /* how many held requests it passes in this step */
} cursor;

static cursor from(const pol_order *order, uint32_t at) {
    cursor c;
    c.order = order;
    c.at = at;
    c.patience = 512;
    return c;
}

enum { NONE = 0xffffffffu };

/* next is the slot that the cursor stands before, without what is listed or held. */
static uint32_t next(cursor *c, const pol_step *step) {
    for (; c->at < c->order->len && c->patience > 0; c->at++) {
        uint32_t slot = c->order->slots[c->at];
        if (listed[slot]) continue;
        if (!held(step, pol_at(step, slot))) return slot;
        c->patience--;
    }
    return NONE;
}

static uint32_t group_start(uint64_t hash) {
    pol_key key;
    key.first = (int64_t)hash;
    key.second = INT64_MIN;
    key.id = 0;
    return pol_order_find(&by_group.order, &key);
}

/* pick is the next request by affinity: one that is begun, then one of the group that runs, then the one with
 * most of its prompt in the cache. */
static uint32_t pick(const pol_step *step, cursor *matches, cursor *members, uint16_t *reason) {
    uint32_t slot = next(matches, step);
    *reason = REASON_CACHED;
    if (slot == NONE || (pol_at(step, slot)->state & POL_STATE_RUNNING) != 0) return slot;
    if (hot == 0) return slot;
    uint32_t member = next(members, step);
    if (member == NONE || pol_at(step, member)->prefix_hash != hot) return slot;
    *reason = REASON_GROUP;
    return member;
}

/* run lists one request and keeps the accounts. 0: the step is full. */
static int run(const pol_step *step, pol_out *out, pol_chunks *chunks, uint32_t slot, uint16_t reason) {
    const pol_record *r = pol_at(step, slot);
    uint32_t tokens = pol_chunk(chunks, r->remaining_prefill);
    if (tokens == 0 || !pol_add(out, slot, r, POL_ACTION_RUN, tokens, reason)) return 0;
    listed[slot] = 1;
    if (r->prefix_hash != 0 && done(r) < hold_tokens) mark_busy(r->prefix_hash, step->header->step);
    claim += (int64_t)tokens * percent;
    if (reason == REASON_OLDEST) claim -= (int64_t)tokens * 100;
    int64_t most = (int64_t)step->header->token_budget * 100;
    claim = claim > most ? most : claim < 0 ? 0 : claim;
    return 1;
}

/* paid says whether the oldest's claim pays for its next chunk. */
static int paid(const pol_step *step, const pol_chunks *chunks, uint32_t slot) {
    pol_chunks trial = *chunks;
    return slot != NONE && claim >= (int64_t)pol_chunk(&trial, pol_at(step, slot)->remaining_prefill) * 100;
}

/* choose is the next request: the oldest when its claim pays for it, else by affinity. */
static uint32_t choose(const pol_step *step, const pol_chunks *chunks, cursor *ages, cursor *matches, cursor *members,
                       uint16_t *reason) {
    uint32_t oldest = next(ages, step);
    *reason = REASON_OLDEST;
    if (paid(step, chunks, oldest)) return oldest;
    uint32_t alike = pick(step, matches, members, reason);
    if (alike != NONE) return alike;
    *reason = REASON_OLDEST;
    return oldest;
}

/* may_start says whether a waiting request will be let in, and takes its place if so. */
static int may_start(const pol_record *r, const pol_chunks *chunks, pol_pages *pages, uint32_t *starts) {
    pol_chunks trial = *chunks;
    if (*starts == 0 || !pol_pages_take(pages, r, pol_chunk(&trial, r->remaining_prefill))) return 0;
    --*starts;
    return 1;
}

/* run_all lists requests until the step is full. Once somebody is not let in, only those that are begun go on: what
 * is listed and does not run would be charged, and would change the group. */
static void run_all(const pol_step *step, pol_out *out) {
    pol_chunks chunks = pol_chunks_of(step->header);
    pol_pages pages = pol_pages_of(step->header);
    uint32_t starts = step->header->max_admit, closed = 0;
    cursor ages = from(&by_age, 0), matches = from(&by_match.order, 0);
    cursor members = from(&by_group.order, group_start(hot));
    for (;;) {
        uint16_t reason = REASON_CACHED;
        uint32_t slot = closed ? next(&matches, step) : choose(step, &chunks, &ages, &matches, &members, &reason);
        if (slot == NONE) return;
        const pol_record *r = pol_at(step, slot);
        if ((r->state & POL_STATE_RUNNING) == 0) {
            if (closed) return; /* those begun stand first */
            closed = !may_start(r, &chunks, &pages, &starts);
            if (closed && out->len > 0) continue;
        }
        if (!run(step, out, &chunks, slot, reason)) return;
        if (reason == REASON_OLDEST || r->prefix_hash == hot) continue;
        hot = r->prefix_hash;
        members = from(&by_group.order, group_start(hot));
    }
}

static int decide(const pol_step *step, pol_out *out) {
    int code = pol_order_update(&by_age, step, age);
    if (code == 0) code = sweep(&by_match, step, match);
    if (code == 0) code = sweep(&by_group, step, group);
    if (code < 0) return code;
    run_all(step, out);
    for (uint32_t i = 0; i < out->len; i++) listed[out->items[i].slot] = 0;
    return 0;
}

POL_POLICY("prefix-affinity", "1.0.0", init, decide)
