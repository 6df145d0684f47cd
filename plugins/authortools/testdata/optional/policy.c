/* Counts events: each decision's reason is how many there were, and the count outlives a swap. */
#include "pol.h"

enum { STATE_VERSION = 1 };

static uint64_t seen;

static int init(pol_config *config, uint32_t slots) {
    (void)config, (void)slots;
    return 0;
}

static int hear(const pol_event *events, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (events[i].extra == 77) __builtin_trap();
        if (events[i].extra == 78) return pol_fail(POL_CODE_BAD_ARGUMENT, "it was 78");
    }
    seen += n;
    return 0;
}

static int decide(const pol_step *step, pol_out *out) {
    if (step->header->n_slots == 0 || !pol_prefills(pol_at(step, 0))) return 0;
    pol_run(out, 0, pol_at(step, 0), POL_TOKENS_AUTO);
    out->items[out->len - 1].reason = (uint16_t)seen;
    return 0;
}

static int32_t save(uint8_t *to, uint32_t room) {
    if (room >= sizeof seen) __builtin_memcpy(to, &seen, sizeof seen);
    return (int32_t)sizeof seen;
}

static int load(const uint8_t *from, uint32_t len, uint32_t version) {
    if (version != STATE_VERSION) return pol_fail(POL_CODE_STATE_VERSION, "not this version");
    if (len != sizeof seen) return pol_fail(POL_CODE_BAD_ARGUMENT, "not eight bytes");
    __builtin_memcpy(&seen, from, sizeof seen);
    return 0;
}

POL_POLICY_WITH_STATE("mine", "1.0.0", init, decide, POL_DEFAULT_FLAGS, 0,
                      POL_DEFAULT_CAPS | POL_CAP_EVENTS | POL_CAP_STATE, STATE_VERSION, save, load)
POL_OBSERVE(hear)
