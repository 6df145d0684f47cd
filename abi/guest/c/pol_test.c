/* Tests of pol.h, compiled natively: each helper against its naive twin on random input, whose seed is
 * printed with a failure. */
#include "pol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 200 };

static uint64_t state_ = 42;

static uint32_t below(uint32_t n) { /* xorshift: enough to shake a data structure */
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return (uint32_t)(state_ >> 32) % n;
}

static void check(int ok, const char *what, int64_t at) {
    if (ok) return;
    printf("FAIL %s at %lld\n", what, (long long)at);
    exit(1);
}

static pol_record table[SLOTS];

static int key_of(const pol_record *r, pol_key *key) {
    key->first = r->arrival_ns;
    key->second = -(int64_t)r->priority;
    key->id = r->id;
    return pol_prefills(r);
}

static int compare(const void *a, const void *b) {
    pol_key x, y;
    key_of(&table[*(const uint32_t *)a], &x);
    key_of(&table[*(const uint32_t *)b], &y);
    return pol_before(&x, &y) ? -1 : pol_before(&y, &x);
}

static uint32_t naive(uint32_t *slots) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < SLOTS; s++)
        if (pol_prefills(&table[s])) slots[n++] = s;
    qsort(slots, n, sizeof *slots, compare);
    return n;
}

static void test_order(void) {
    pol_order order;
    pol_header header = {0};
    uint32_t changed[SLOTS], want[SLOTS];
    uint64_t id = 0;
    check(pol_order_init(&order, SLOTS) == 0, "order init", 0);
    for (int64_t step = 0; step < 20000; step++) {
        header.flags = step == 0 || below(100) == 0 ? POL_FLAG_RESYNC : 0;
        header.n_changed = 0;
        uint32_t odds = (uint32_t[]){0, 2, 10, 100}[below(4)];
        for (uint32_t s = 0; s < SLOTS; s++) {
            pol_record *r = &table[s];
            int change = below(100) < odds;
            if (change) {
                r->id = below(2) || !r->id ? ++id : r->id;
                r->arrival_ns = below(5), r->priority = (int32_t)below(5) - 2;
                r->state = (uint32_t[]){0, 1, 1, 1, 3, 7}[below(6)];
                r->remaining_prefill = below(4);
            }
            if (change || (header.flags && r->state)) changed[header.n_changed++] = s;
        }
        pol_step view = {&header, (const uint8_t *)table, changed, sizeof *table, 0, 0};
        check(pol_order_update(&order, &view, key_of) == 0, "order update", step);
        check(order.len == naive(want), "order length", step);
        check(!memcmp(order.slots, want, order.len * 4), "order", step);
    }
    changed[0] = SLOTS, header.n_changed = 1;
    pol_step view = {&header, (const uint8_t *)table, changed, sizeof *table, 0, 0};
    check(pol_order_update(&order, &view, key_of) == POL_CODE_BAD_ARGUMENT, "slot beyond the table", 0);
}

static void test_top(void) {
    pol_top top;
    check(pol_top_init(&top, 20) == 0, "top init", 0);
    for (int64_t round = 0; round < 2000; round++) {
        uint32_t want[SLOTS];
        for (uint32_t s = 0; s < SLOTS; s++) {
            table[s].id = s + 1, table[s].arrival_ns = below(30), table[s].state = below(4) ? 1 : 0;
            table[s].remaining_prefill = 1;
        }
        pol_top_clear(&top);
        for (uint32_t s = 0; s < SLOTS; s++) {
            pol_key key;
            if (key_of(&table[s], &key)) pol_top_offer(&top, &key, s);
        }
        pol_top_sort(&top);
        uint32_t n = naive(want);
        check(top.len == (n < 20 ? n : 20), "top length", round);
        for (uint32_t i = 0; i < top.len; i++) check(top.items[i].slot == want[i], "top", round);
    }
}

static void test_chunks(void) {
    static const struct {
        uint32_t budget, decodes, max, align, remaining, want;
    } cases[] = {
        {100, 0, 50, 0, 30, 30},  {100, 0, 50, 0, 80, 50},   {100, 80, 50, 0, 80, 20}, {100, 100, 50, 0, 80, 0},
        {100, 200, 50, 0, 80, 0}, {100, 0, 50, 16, 80, 48},  {100, 0, 50, 16, 50, 50}, {10, 0, 50, 16, 80, 0},
        {10, 0, 50, 16, 10, 10},  {100, 0, 50, 1, 80, 50},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pol_header h = {0};
        h.token_budget = cases[i].budget, h.decode_tokens = cases[i].decodes;
        h.chunk_max = cases[i].max, h.chunk_align = cases[i].align;
        pol_chunks c = pol_chunks_of(&h);
        uint32_t before = c.left, got = pol_chunk(&c, cases[i].remaining);
        check(got == cases[i].want && c.left == before - got, "chunk", (int64_t)i);
    }
}

static int64_t number;
static int flag;

static int init(pol_config *config, uint32_t slots) {
    check(slots == 10, "slots", slots);
    number = pol_config_int(config, "number", 5, -10, 1000000000000000000);
    flag = pol_config_bool(config, "flag", 1);
    return pol_alloc(100) ? 0 : POL_CODE_OUT_OF_MEMORY;
}

static int decide(const pol_step *step, pol_out *out) {
    (void)step, (void)out;
    return pol_alloc(1) ? 1 : 0; /* nothing is handed out while deciding */
}

POL_POLICY("test", "9", init, decide)

static void test_config(void) {
    static const struct {
        const char *text;
        int64_t number;
        int flag;
        const char *error;
    } cases[] = {
        {"", 5, 1, 0},
        {"{}", 5, 1, 0},
        {" { } ", 5, 1, 0},
        {"{\"number\":7}", 7, 1, 0},
        {"{\n \"flag\" : false ,\t\"number\" : -10\r\n}", -10, 0, 0},
        {"{\"number\":999999999999999999}", 999999999999999999, 1, 0},
        {"{\"number\":-11}", 0, 0, "number must be a whole number from -10 to 1000000000000000000"},
        {"{\"number\":1.5}", 0, 0, "number must be"},
        {"{\"number\":-}", 0, 0, "number must be"},
        {"{\"number\":\"7\"}", 0, 0, "number must be"},
        {"{\"number\":9999999999999999999}", 0, 0, "number must be"},
        {"{\"flag\":1}", 0, 0, "flag must be true or false"},
        {"{\"flag\":tru}", 0, 0, "flag must be true or false"},
        {"{\"numbr\":1}", 0, 0, "there is no setting numbr"},
        {"{\"numb\":1}", 0, 0, "there is no setting numb"},
        {"{\"a\":{\"number\":[1,\"}\\\"\"]},\"number\":2}", 0, 0, "there is no setting a"},
        {"[]", 0, 0, "not a JSON object"},
        {"7", 0, 0, "not a JSON object"},
        {"{\"number\":7", 0, 0, "not a JSON object"},
        {"{\"number\":}", 0, 0, "not a JSON object"},
        {"{\"number\" 7}", 0, 0, "not a JSON object"},
        {"{\"number", 0, 0, "not a JSON object"},
        {"{\"flag\":true,}", 0, 0, "not a JSON object"},
        {"{,}", 0, 0, "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t len = (uint32_t)strlen(cases[i].text);
        memcpy(pol_buffer(POL_BUFFER_CONFIG, 256), cases[i].text, len);
        pol_buffer(POL_BUFFER_RECORDS, 10 * sizeof(pol_record));
        int32_t code = pol_init((int32_t)len);
        if (!cases[i].error) {
            check(code == 0 && number == cases[i].number && flag == cases[i].flag, "settings", (int64_t)i);
            continue;
        }
        char message[513] = {0};
        memcpy(message, pol_error_text_, pol_error_len_);
        check(code == POL_CODE_BAD_CONFIG && strstr(message, cases[i].error), message, (int64_t)i);
    }
}

static void test_exports(void) {
    const pol_descriptor *d = pol_abi_v1();
    check(d->magic == POL_MAGIC && d->name_len == 4 && d->version_len == 1, "descriptor", 0);
    check(pol_buffer(-1, 8) == 0 && pol_buffer(9, 8) == 0, "unknown kinds", 0);
    check(pol_buffer(POL_BUFFER_STATE, 1u << 31) == 0, "too large", 0);
    char *small = (char *)pol_buffer(POL_BUFFER_EVENTS, 100);
    check(small && (uintptr_t)small % 16 == 0, "alignment", 0);
    check(pol_buffer(POL_BUFFER_EVENTS, 50) == small, "a region that is large enough stays", 0);
    check(pol_buffer(POL_BUFFER_EVENTS, 5000) != small, "a region that grows moves", 0);
    pol_decision items[1];
    pol_out out = {items, 0, 1};
    pol_record r = {0};
    r.id = 0x1122334455667788;
    check(pol_skip(&out, 3, &r) && !pol_run(&out, 4, &r, 1) && out.len == 1, "a full list", 0);
    check(items[0].id_low == 0x55667788 && items[0].action == POL_ACTION_SKIP && items[0].slot == 3, "skip", 0);
    pol_deciding_ = 1;
    check(decide(0, &out) == 0, "no memory while deciding", 0);
    pol_deciding_ = 0;
    check(pol_fail(-1000, "why") == -1000 && (uint32_t)pol_last_error() == 3, "last error", 0);
}

static void test_within(void) {
    pol_header h = {0};
    h.chunk_max = 2048;
    check(pol_chunk_within(&h, 0, 1) == 2048, "no figures", 0);
    h.cost_fixed_us = 1000, h.cost_token_ns = 10000, h.decode_tokens = 10;
    check(pol_chunk_within(&h, 0, 6100000) == 500, "linear", 0);
    check(pol_chunk_within(&h, 0, 1000000) == 0, "too late", 0);
    check(pol_chunk_within(&h, 0, (int64_t)1 << 60) == 2048, "all the time", 0);
    h.cost_ctx_ps = 10000;
    check(pol_chunk_within(&h, 1000, 6100000) == 236, "curved", 0);
}

static void test_pages(void) {
    pol_header h = {0};
    h.page_tokens = 16, h.free_pages = 10, h.n_running = 2, h.reserve_pages = 3;
    pol_pages p = pol_pages_of(&h);
    pol_record waits = {0};
    waits.state = POL_STATE_LIVE;
    waits.prompt_tokens = 100, waits.cached_tokens = 24, waits.remaining_prefill = 76, waits.pages_needed = 6;
    check(pol_pages_needed(&p, &waits, 8) == 1, "the copy of a page begun by another", 0);
    check(pol_pages_needed(&p, &waits, 9) == 2 && pol_pages_needed(&p, &waits, 76) == 6, "pages of a prompt", 0);
    check(pol_pages_take(&p, &waits, 76) && p.free == 4 && p.running == 3 && p.reserve == 4, "just fits", 0);
    check(!pol_pages_take(&p, &waits, 8) && p.free == 4, "the reserve stays free", 0);
    pol_record runs = {0};
    runs.state = POL_STATE_LIVE | POL_STATE_RUNNING;
    runs.prompt_tokens = 60, runs.generated = 4, runs.remaining_prefill = 34, runs.pages_needed = 2;
    check(pol_pages_needed(&p, &runs, 2) == 0 && pol_pages_needed(&p, &runs, 3) == 1, "its own page is filled", 0);
    check(!pol_pages_take(&p, &runs, 34) && pol_pages_take(&p, &runs, 18) && p.free == 3, "one for each", 0);
    check(pol_pages_take(&p, &runs, 2) && p.free == 3, "what needs none always fits", 0);
    h.n_running = 0, h.free_pages = 7;
    p = pol_pages_of(&h);
    check(pol_pages_take(&p, &waits, 76), "nobody else could free the reserve", 0);
}

static void test_tables(void) {
    pol_tenant tenants[2] = {{0}};
    pol_peer peers[1] = {{0}};
    pol_header h = {0};
    h.n_tenants = 2, h.n_peers = 1;
    pol_step step = {0};
    step.header = &h, step.tenants = tenants, step.peers = peers;
    check(pol_tenant_of(&step, 1) == &tenants[1] && !pol_tenant_of(&step, 2), "tenants", 0);
    check(pol_peer_of(&step, 1) == peers && !pol_peer_of(&step, 0) && !pol_peer_of(&step, 2), "peers", 0);
}

static void test_counters(void) {
    pol_counters c;
    check(pol_counters_init(&c, 3) == 0, "memory", 0);
    pol_counters_enter(&c, 0);
    pol_counters_charge(&c, 0, 100, 0);
    pol_counters_enter(&c, 1);
    check(pol_counters_of(&c, 0) == 100000 && pol_counters_of(&c, 1) == 100000, "no lower than the least", 0);
    pol_counters_charge(&c, 1, 100, 2000);
    check(pol_counters_of(&c, 1) == 150000, "weight", 0);
    pol_counters_leave(&c, 0);
    pol_counters_charge(&c, 1, 1, 1000);
    pol_counters_enter(&c, 0);
    check(pol_counters_of(&c, 0) == 151000, "rest is not saved up", 0);
    pol_counters_enter(&c, 7);
    check(pol_counters_of(&c, 2) == 151000, "beyond the room", 0);
    pol_counters_charge(&c, 1, 7, 3000);
    pol_counters_refund(&c, 1, 7, 3000);
    check(pol_counters_of(&c, 1) == 151000, "refund", 0);
}

int main(void) {
    test_within();
    test_pages();
    test_tables();
    test_counters();
    test_order();
    test_top();
    test_chunks();
    test_config();
    test_exports();
    return 0;
}
