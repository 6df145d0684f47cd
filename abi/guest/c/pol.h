/* pol.h - write a scheduling policy in C or C++. One header, no libc, no allocation while deciding.
 *
 *     #include "pol.h"
 *
 *     static int init(pol_config *config, uint32_t slots) { ...; return 0; }
 *     static int decide(const pol_step *step, pol_out *out) { ...; return 0; }
 *
 *     POL_POLICY("mine", "1.0.0", init, decide)
 *
 * init runs once: it reads settings (pol_config_int, ...) and takes memory (pol_alloc, pol_order_init,
 * pol_top_init). decide runs once a step: it reads records (pol_at) and writes decisions (pol_run, pol_skip).
 * Both return 0, or an error code, best by pol_fail(code, message). What the fields mean, and what
 * the host checks, stands in SPEC.md.
 *
 * The same file compiles natively, so that decide can be unit-tested: fill a pol_step and a pol_out by
 * hand. Needs C11 or C++17, and a compiler with __builtin_memmove (clang, zig cc, gcc).
 */
#ifndef POL_H
#define POL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define POL_ASSERT static_assert
#define POL_C extern "C"
#else
#define POL_ASSERT _Static_assert
#define POL_C
#endif

#ifdef __wasm__
#define POL_EXPORT(name) POL_C __attribute__((export_name(name))) __attribute__((used))
#define POL_IMPORT(name) POL_C __attribute__((import_module("pol_v1"), import_name(name)))
#else
#define POL_EXPORT(name) POL_C __attribute__((used))
#endif

/* ------------------------------------------------------------------ records and codes (generated) */

/* abi: c */

#define POL_MAJOR 1
#define POL_MINOR 0
#define POL_MAGIC 0x314c4f50u /* POL1 */

/* Step flags (header.flags) */
#define POL_FLAG_RESYNC 1u /* Every live slot is in the changed list: forget what was kept. */
#define POL_FLAG_SWAP 2u /* First step after this module took over. */
#define POL_FLAG_MEMORY_PRESSURE 4u /* free_pages is at most reserve_pages. */
#define POL_FLAG_DRAINING 8u /* The engine takes no new requests. */

/* Roles (header.role) */
#define POL_ROLE_PREFILL 1u /* Computes prompts and sends their KV away. */
#define POL_ROLE_DECODE 2u /* Receives KV and generates. */
#define POL_ROLE_ALL 3u /* Both. */

/* State bits (record.state) */
#define POL_STATE_LIVE 1u /* The slot holds a request. */
#define POL_STATE_RUNNING 2u /* It holds pages. */
#define POL_STATE_DECODING 4u /* Its prompt is done; it makes a token a step. */
#define POL_STATE_PREEMPTED 8u /* Its pages were taken; it waits to start again. */
#define POL_STATE_CANCEL_PENDING 16u /* It is being cancelled: the host will not run it. */
#define POL_STATE_FIRST_TOKEN_SENT 32u /* Its stream has begun. */
#define POL_STATE_PINNED 64u /* The host keeps its pages: it cannot be preempted. */

/* Kinds (record.kind) */
#define POL_KIND_LOCAL 0u /* Prefill and decode here. */
#define POL_KIND_REMOTE_SEND 1u /* Prefill here, KV sent away; makes no token here. */
#define POL_KIND_PREPARE_RECEIVE 2u /* Its KV comes from another instance. */
#define POL_KIND_RESUMED 3u /* Started again after a preemption. */

/* Service classes (record.class) */
#define POL_CLASS_NONE 0u /* Not said. */
#define POL_CLASS_INTERACTIVE 1u /* Somebody waits for it. */
#define POL_CLASS_BATCH 2u /* Nobody does. */

/* Actions (decision.action) */
#define POL_ACTION_RUN 0u /* Compute `tokens` of it in this step. */
#define POL_ACTION_PREEMPT_RECOMPUTE 1u /* Take its pages; compute it again later. Capability 1. */
#define POL_ACTION_PREEMPT_SWAP 2u /* Take its pages, keep their content elsewhere. Capability 2. */
#define POL_ACTION_SKIP 3u /* Leave it out of this step, a decode too. */
#define POL_ACTION_SHED 4u /* Refuse it for good. Capability 3. */

/* Capabilities (descriptor.caps_required, caps_optional; granted) */
#define POL_CAP_CHUNK_LENGTHS 0x1ull /* Chunk lengths are honoured. */
#define POL_CAP_PREEMPT 0x2ull /* Action 1 is carried out. */
#define POL_CAP_SWAP 0x4ull /* Action 2 is carried out. */
#define POL_CAP_SHED 0x8ull /* Action 4 is carried out. */
#define POL_CAP_TENANTS 0x10ull /* Region 5 is kept current. */
#define POL_CAP_EVENTS 0x20ull /* pol_observe is called. */
#define POL_CAP_STATE 0x40ull /* pol_save and pol_load are called. */
#define POL_CAP_PREDICTION 0x80ull /* predicted_output may be other than 0. */
#define POL_CAP_ADAPTER 0x100ull /* adapter may be other than 0. */
#define POL_CAP_LOG 0x200ull /* log reaches the engine's log. */
#define POL_CAP_PEERS 0x400ull /* Region 8 is kept current. */

/* Descriptor flags (descriptor.flags) */
#define POL_DESC_WANTS_CHANGED 1u /* It follows the changed list. */
#define POL_DESC_STATELESS 2u /* It keeps nothing from step to step. */
#define POL_DESC_MAY_FILL 4u /* The host may fill the budget that it leaves. */
#define POL_DESC_NEEDS_TENANTS 8u /* It cannot work without the tenant table. */
#define POL_DESC_SELECTS 16u /* It says which requests run, in which order. */
#define POL_DESC_SETS_CHUNKS 32u /* It says how long each chunk is. */

/* Event kinds (event.kind) */
#define POL_EVENT_FINISHED 1u /* A request ended by itself. */
#define POL_EVENT_CANCELLED 2u /* A request was cancelled, shed, or failed. */
#define POL_EVENT_PREEMPTED 3u /* A request lost its pages. */
#define POL_EVENT_ADMITTED 4u /* A request got its first pages. */
#define POL_EVENT_DECISION_TRIMMED 5u /* A decision was carried out with fewer tokens. */
#define POL_EVENT_DECISION_REFUSED 6u /* A decision was not carried out. */
#define POL_EVENT_STEP_DONE 7u /* The step is over. */

/* Why a decision was not carried out (event.extra of decision_refused) */
#define POL_REFUSAL_IDLE 0x1ull /* It has nothing to compute now. */
#define POL_REFUSAL_MAX_SEQS 0x2ull /* As many requests hold pages as may. */
#define POL_REFUSAL_MAX_ADMIT 0x3ull /* As many were admitted in this step as may be. */
#define POL_REFUSAL_PAGES 0x4ull /* Its pages are not free. */
#define POL_REFUSAL_BUDGET 0x5ull /* The step's tokens were used up before it. */
#define POL_REFUSAL_CLOSED 0x6ull /* Nobody is admitted: a starving or displaced request comes first. */
#define POL_REFUSAL_TENANT 0x7ull /* Its tenant holds as many requests as it may. */
#define POL_REFUSAL_GUARDED 0x8ull /* It was put first by the starvation guard and is not preempted yet. */
#define POL_REFUSAL_MAX_PREEMPT 0x9ull /* As many were preempted in this step as may be. */
#define POL_REFUSAL_BEGUN 0xaull /* It cannot be shed: its stream has begun, or its pages are in use. */
#define POL_REFUSAL_CANCELLED 0xbull /* It is being cancelled. */

/* Why a request lost its pages (event.reason of preempted) */
#define POL_PREEMPTED_MEMORY 0u /* A running stream needed a page. */
#define POL_PREEMPTED_POLICY 1u /* The policy said so. */
#define POL_PREEMPTED_STANDSTILL 2u /* Nobody could go on. */

/* Regions (pol_buffer kind) */
#define POL_BUFFER_CONFIG 0 /* The policy's settings, UTF-8 JSON; at load. */
#define POL_BUFFER_RECORDS 1 /* The record table. */
#define POL_BUFFER_CHANGED 2 /* The changed list. */
#define POL_BUFFER_HEADER 3 /* The step header. */
#define POL_BUFFER_DECISIONS 4 /* The guest's answer. */
#define POL_BUFFER_TENANTS 5 /* The tenant table. Capability 4. */
#define POL_BUFFER_EVENTS 6 /* Events for pol_observe. Capability 5. */
#define POL_BUFFER_STATE 7 /* What pol_save writes. Capability 6. */
#define POL_BUFFER_PEERS 8 /* The peer table. Capability 10. */

/* Error codes (negative results of pol_init, pol_decide, …) */
#define POL_CODE_UNSPECIFIED (-1) /* Something is wrong. */
#define POL_CODE_BAD_ARGUMENT (-2) /* The host passed what the module cannot use. */
#define POL_CODE_UNSUPPORTED (-3) /* The module cannot do this. */
#define POL_CODE_BAD_CONFIG (-4) /* The settings are not acceptable. */
#define POL_CODE_OUT_OF_MEMORY (-5) /* The module's memory does not suffice. */
#define POL_CODE_INCONSISTENT (-6) /* Its own records disagree: the host sends a full resync, once. */
#define POL_CODE_STATE_VERSION (-7) /* The saved state is of a version it does not read. */
#define POL_CODE_POLICY_MAX (-1000) /* This and all below: the policy's own. */

/* Log levels (log, log_level) */
#define POL_LOG_DEBUG (-1) /* For the author. */
#define POL_LOG_INFO 0 /* Worth a line. */
#define POL_LOG_WARN 1 /* Worth a look. */
#define POL_LOG_ERROR 2 /* Wrong. */
#define POL_LOG_OFF 3 /* Nothing is wanted: answer of log_level only. */

/* pol_header is what a policy sees of the engine in one step. The host writes it before each call. */
typedef struct {
    uint32_t magic; /* 0: The four bytes POL1. */
    uint16_t minor; /* 4: The host's minor version. */
    uint16_t header_size; /* 6: Bytes of this header that the host wrote. Read no further. */
    uint64_t step; /* 8: Number of the step, counted from 1 for the engine's life. Never repeats. */
    int64_t now_ns; /* 16: The engine's monotonic clock, nanoseconds since its start. The only clock a policy has. */
    uint32_t n_slots; /* 24: Slots of the record table in use or used before: all slots are below it. */
    uint32_t record_stride; /* 28: Bytes from one record to the next. At least 128, a multiple of 8. */
    uint32_t records_ptr; /* 32: Address of slot 0 of the record table. */
    uint32_t changed_ptr; /* 36: Address of the changed list: u32 slots, ascending, each once. */
    uint32_t n_changed; /* 40: Entries of the changed list. */
    uint32_t flags; /* 44: Step flags. */
    uint32_t n_waiting; /* 48: Live requests that hold no pages. */
    uint32_t n_running; /* 52: Live requests that hold pages, prefilling or decoding. */
    uint32_t free_pages; /* 56: KV pages that can be handed out now, evictable ones included. */
    uint32_t total_pages; /* 60: KV pages of this engine. */
    uint32_t page_tokens; /* 64: Token slots in one page. */
    uint32_t token_budget; /* 68: Most tokens this step may compute, prefill and decode together. */
    uint32_t chunk_max; /* 72: Most prefill tokens of one request in one step. */
    uint32_t chunk_align; /* 76: A chunk that is not a prompt's last is a multiple of this. 0 and 1 mean any length. */
    uint32_t max_seqs; /* 80: Most requests that may hold pages after this step. */
    uint32_t max_admit; /* 84: Most waiting requests that may start in this step. */
    uint32_t reserve_pages; /* 88: Pages that admissions must leave free. */
    uint32_t decisions_cap; /* 92: Most decisions the guest may return in this step. */
    uint32_t decisions_ptr; /* 96: Address of the first decision. */
    uint32_t decision_stride; /* 100: Bytes from one decision to the next. */
    uint32_t tenants_ptr; /* 104: Address of the tenant table. 0: none. */
    uint32_t n_tenants; /* 108: Entries of the tenant table. */
    uint64_t seed; /* 112: Seed for choices by chance, another one each step; the same again on replay. */
    uint32_t last_step_us; /* 120: Duration of the previous step, microseconds. 0: none yet. */
    uint32_t role; /* 124: What this instance does. */
    uint64_t send_backlog_bytes; /* 128: KV bytes marked for sending and not yet acknowledged. */
    uint32_t link_bytes_per_us; /* 136: Measured rate of the link to decode instances, bytes a microsecond. 0: unknown. */
    uint32_t kv_bytes_per_token; /* 140: KV bytes of one token, all layers. */
    int64_t decode_due_ns; /* 144: When the tightest running stream needs its next token. 0: none. */
    uint32_t cost_fixed_us; /* 152: Fixed cost of a step, microseconds. 0: not known yet. */
    uint32_t cost_token_ns; /* 156: Cost of a prefill token, nanoseconds. 0: not known yet. */
    uint32_t cost_ctx_ps; /* 160: Cost per token and context token, picoseconds. 0: not known. */
    uint32_t decode_tokens; /* 164: Tokens of token_budget that the running decodes use; prefill has token_budget less this. */
    uint32_t n_preset; /* 168: Decisions already in region 4, for a module that only sets chunk lengths. */
    uint32_t peers_ptr; /* 172: Address of the peer table. 0: none. */
    uint32_t n_peers; /* 176: Entries of the peer table. */
    uint8_t reserved[12]; /* 180: Room for later minor versions. */
} pol_header;
POL_ASSERT(sizeof(pol_header) == 192, "size of pol_header");
POL_ASSERT(offsetof(pol_header, magic) == 0, "pol_header.magic");
POL_ASSERT(offsetof(pol_header, minor) == 4, "pol_header.minor");
POL_ASSERT(offsetof(pol_header, header_size) == 6, "pol_header.header_size");
POL_ASSERT(offsetof(pol_header, step) == 8, "pol_header.step");
POL_ASSERT(offsetof(pol_header, now_ns) == 16, "pol_header.now_ns");
POL_ASSERT(offsetof(pol_header, n_slots) == 24, "pol_header.n_slots");
POL_ASSERT(offsetof(pol_header, record_stride) == 28, "pol_header.record_stride");
POL_ASSERT(offsetof(pol_header, records_ptr) == 32, "pol_header.records_ptr");
POL_ASSERT(offsetof(pol_header, changed_ptr) == 36, "pol_header.changed_ptr");
POL_ASSERT(offsetof(pol_header, n_changed) == 40, "pol_header.n_changed");
POL_ASSERT(offsetof(pol_header, flags) == 44, "pol_header.flags");
POL_ASSERT(offsetof(pol_header, n_waiting) == 48, "pol_header.n_waiting");
POL_ASSERT(offsetof(pol_header, n_running) == 52, "pol_header.n_running");
POL_ASSERT(offsetof(pol_header, free_pages) == 56, "pol_header.free_pages");
POL_ASSERT(offsetof(pol_header, total_pages) == 60, "pol_header.total_pages");
POL_ASSERT(offsetof(pol_header, page_tokens) == 64, "pol_header.page_tokens");
POL_ASSERT(offsetof(pol_header, token_budget) == 68, "pol_header.token_budget");
POL_ASSERT(offsetof(pol_header, chunk_max) == 72, "pol_header.chunk_max");
POL_ASSERT(offsetof(pol_header, chunk_align) == 76, "pol_header.chunk_align");
POL_ASSERT(offsetof(pol_header, max_seqs) == 80, "pol_header.max_seqs");
POL_ASSERT(offsetof(pol_header, max_admit) == 84, "pol_header.max_admit");
POL_ASSERT(offsetof(pol_header, reserve_pages) == 88, "pol_header.reserve_pages");
POL_ASSERT(offsetof(pol_header, decisions_cap) == 92, "pol_header.decisions_cap");
POL_ASSERT(offsetof(pol_header, decisions_ptr) == 96, "pol_header.decisions_ptr");
POL_ASSERT(offsetof(pol_header, decision_stride) == 100, "pol_header.decision_stride");
POL_ASSERT(offsetof(pol_header, tenants_ptr) == 104, "pol_header.tenants_ptr");
POL_ASSERT(offsetof(pol_header, n_tenants) == 108, "pol_header.n_tenants");
POL_ASSERT(offsetof(pol_header, seed) == 112, "pol_header.seed");
POL_ASSERT(offsetof(pol_header, last_step_us) == 120, "pol_header.last_step_us");
POL_ASSERT(offsetof(pol_header, role) == 124, "pol_header.role");
POL_ASSERT(offsetof(pol_header, send_backlog_bytes) == 128, "pol_header.send_backlog_bytes");
POL_ASSERT(offsetof(pol_header, link_bytes_per_us) == 136, "pol_header.link_bytes_per_us");
POL_ASSERT(offsetof(pol_header, kv_bytes_per_token) == 140, "pol_header.kv_bytes_per_token");
POL_ASSERT(offsetof(pol_header, decode_due_ns) == 144, "pol_header.decode_due_ns");
POL_ASSERT(offsetof(pol_header, cost_fixed_us) == 152, "pol_header.cost_fixed_us");
POL_ASSERT(offsetof(pol_header, cost_token_ns) == 156, "pol_header.cost_token_ns");
POL_ASSERT(offsetof(pol_header, cost_ctx_ps) == 160, "pol_header.cost_ctx_ps");
POL_ASSERT(offsetof(pol_header, decode_tokens) == 164, "pol_header.decode_tokens");
POL_ASSERT(offsetof(pol_header, n_preset) == 168, "pol_header.n_preset");
POL_ASSERT(offsetof(pol_header, peers_ptr) == 172, "pol_header.peers_ptr");
POL_ASSERT(offsetof(pol_header, n_peers) == 176, "pol_header.n_peers");
POL_ASSERT(offsetof(pol_header, reserved) == 180, "pol_header.reserved");

/* pol_record is one request as a policy sees it, at a fixed slot of the resident table for as long as the request lives. The first 64 bytes are what a decision usually needs. */
typedef struct {
    uint64_t id; /* 0: Unique for the engine's life and rising with submission: the last word in every tie. */
    int64_t arrival_ns; /* 8: When the request was accepted, on the clock of now_ns. */
    int64_t deadline_ns; /* 16: When the first token is wanted, on the clock of now_ns. 0: none. */
    int32_t priority; /* 24: Larger first. */
    uint32_t tenant; /* 28: Index into the tenant table. */
    uint32_t state; /* 32: State bits. 0: a free slot, of which nothing else may be read. */
    uint32_t prompt_tokens; /* 36: Length of the prompt. */
    uint32_t cached_tokens; /* 40: Prompt tokens whose KV the prefix cache holds now. Advisory: may shrink until it starts. */
    uint32_t remaining_prefill; /* 44: Prompt tokens still to compute, done and cached ones taken off. 0: nothing to prefill. */
    uint32_t generated; /* 48: Output tokens so far. */
    uint32_t max_new; /* 52: Most output tokens. */
    uint32_t pages_held; /* 56: KV pages the request holds. */
    uint32_t pages_needed; /* 60: Pages to finish its prefill; of a decoding request, for its next token: 0 or 1. */
    int64_t first_token_ns; /* 64: When its first token was made. 0: not yet. */
    int64_t last_sched_ns; /* 72: When it last was part of a step. 0: never. */
    uint64_t service_tokens; /* 80: Tokens computed for it so far, prefill and decode, recomputed ones counted again. */
    uint32_t preempt_count; /* 88: How often its pages were taken. */
    uint32_t predicted_output; /* 92: Output tokens somebody expects. 0: unknown. */
    uint32_t adapter; /* 96: Adapter of the model. 0: none. (later: 0) */
    uint32_t group; /* 100: Requests that came as one (n > 1, several prompts), or that the client groups. 0: none. */
    uint64_t user_tag; /* 104: A number the client chose; the host gives it no meaning. */
    uint64_t prefix_hash; /* 112: Equal for prompts whose first pages (four, or all whole ones) are equal, to run them together. 0: shorter than a page. */
    uint8_t kind; /* 120: Which engine action it is. */
    uint8_t class_; /* 121: Service class. */
    uint16_t peer; /* 122: Index of its destination in the peer table. 0: none. */
    uint32_t lease_ms_left; /* 124: Milliseconds left of a reservation that was granted here and that nobody writes to. 0: none. */
} pol_record;
POL_ASSERT(sizeof(pol_record) == 128, "size of pol_record");
POL_ASSERT(offsetof(pol_record, id) == 0, "pol_record.id");
POL_ASSERT(offsetof(pol_record, arrival_ns) == 8, "pol_record.arrival_ns");
POL_ASSERT(offsetof(pol_record, deadline_ns) == 16, "pol_record.deadline_ns");
POL_ASSERT(offsetof(pol_record, priority) == 24, "pol_record.priority");
POL_ASSERT(offsetof(pol_record, tenant) == 28, "pol_record.tenant");
POL_ASSERT(offsetof(pol_record, state) == 32, "pol_record.state");
POL_ASSERT(offsetof(pol_record, prompt_tokens) == 36, "pol_record.prompt_tokens");
POL_ASSERT(offsetof(pol_record, cached_tokens) == 40, "pol_record.cached_tokens");
POL_ASSERT(offsetof(pol_record, remaining_prefill) == 44, "pol_record.remaining_prefill");
POL_ASSERT(offsetof(pol_record, generated) == 48, "pol_record.generated");
POL_ASSERT(offsetof(pol_record, max_new) == 52, "pol_record.max_new");
POL_ASSERT(offsetof(pol_record, pages_held) == 56, "pol_record.pages_held");
POL_ASSERT(offsetof(pol_record, pages_needed) == 60, "pol_record.pages_needed");
POL_ASSERT(offsetof(pol_record, first_token_ns) == 64, "pol_record.first_token_ns");
POL_ASSERT(offsetof(pol_record, last_sched_ns) == 72, "pol_record.last_sched_ns");
POL_ASSERT(offsetof(pol_record, service_tokens) == 80, "pol_record.service_tokens");
POL_ASSERT(offsetof(pol_record, preempt_count) == 88, "pol_record.preempt_count");
POL_ASSERT(offsetof(pol_record, predicted_output) == 92, "pol_record.predicted_output");
POL_ASSERT(offsetof(pol_record, adapter) == 96, "pol_record.adapter");
POL_ASSERT(offsetof(pol_record, group) == 100, "pol_record.group");
POL_ASSERT(offsetof(pol_record, user_tag) == 104, "pol_record.user_tag");
POL_ASSERT(offsetof(pol_record, prefix_hash) == 112, "pol_record.prefix_hash");
POL_ASSERT(offsetof(pol_record, kind) == 120, "pol_record.kind");
POL_ASSERT(offsetof(pol_record, class_) == 121, "pol_record.class");
POL_ASSERT(offsetof(pol_record, peer) == 122, "pol_record.peer");
POL_ASSERT(offsetof(pol_record, lease_ms_left) == 124, "pol_record.lease_ms_left");

/* pol_decision is one entry of a policy's ordered answer, written by the guest. The first is the most important. */
typedef struct {
    uint32_t slot; /* 0: Slot of the record. */
    uint32_t tokens; /* 4: Chunk length in tokens; 1 for a decode; 0 for an action that computes nothing; 0xFFFFFFFF leaves it to the host. */
    uint32_t id_low; /* 8: Low 32 bits of the record's id: proof that the slot was not reused meanwhile. */
    uint8_t action; /* 12: What to do with the request. */
    uint8_t reserved; /* 13: Must be 0. */
    uint16_t reason; /* 14: The policy's own reason, shown in traces. 0: none. */
} pol_decision;
POL_ASSERT(sizeof(pol_decision) == 16, "size of pol_decision");
POL_ASSERT(offsetof(pol_decision, slot) == 0, "pol_decision.slot");
POL_ASSERT(offsetof(pol_decision, tokens) == 4, "pol_decision.tokens");
POL_ASSERT(offsetof(pol_decision, id_low) == 8, "pol_decision.id_low");
POL_ASSERT(offsetof(pol_decision, action) == 12, "pol_decision.action");
POL_ASSERT(offsetof(pol_decision, reserved) == 13, "pol_decision.reserved");
POL_ASSERT(offsetof(pol_decision, reason) == 14, "pol_decision.reason");

/* pol_descriptor is what a module says of itself: pol_abi_v1 returns its address. */
typedef struct {
    uint32_t magic; /* 0: The four bytes POL1. */
    uint16_t size; /* 4: Bytes of this descriptor: 64. */
    uint16_t minor; /* 6: Minor version the module was built for. */
    uint16_t oldest_host_minor; /* 8: Oldest host minor version the module works with. */
    uint16_t state_version; /* 10: Version of what pol_save writes. 0: it saves nothing. */
    uint32_t flags; /* 12: Descriptor flags. */
    uint64_t caps_required; /* 16: Capabilities without which the module must not be loaded. */
    uint64_t caps_optional; /* 24: Capabilities the module uses when it gets them. */
    uint32_t name_ptr; /* 32: Address of the policy's name, UTF-8. */
    uint32_t name_len; /* 36: Its bytes. */
    uint32_t version_ptr; /* 40: Address of the policy's version, UTF-8. */
    uint32_t version_len; /* 44: Its bytes. */
    uint32_t record_bytes; /* 48: Bytes of a request record the module understands: at least 128. */
    uint32_t header_bytes; /* 52: Bytes of the step header the module understands: at least 192. */
    uint64_t reserved; /* 56: Must be 0. */
} pol_descriptor;
POL_ASSERT(sizeof(pol_descriptor) == 64, "size of pol_descriptor");
POL_ASSERT(offsetof(pol_descriptor, magic) == 0, "pol_descriptor.magic");
POL_ASSERT(offsetof(pol_descriptor, size) == 4, "pol_descriptor.size");
POL_ASSERT(offsetof(pol_descriptor, minor) == 6, "pol_descriptor.minor");
POL_ASSERT(offsetof(pol_descriptor, oldest_host_minor) == 8, "pol_descriptor.oldest_host_minor");
POL_ASSERT(offsetof(pol_descriptor, state_version) == 10, "pol_descriptor.state_version");
POL_ASSERT(offsetof(pol_descriptor, flags) == 12, "pol_descriptor.flags");
POL_ASSERT(offsetof(pol_descriptor, caps_required) == 16, "pol_descriptor.caps_required");
POL_ASSERT(offsetof(pol_descriptor, caps_optional) == 24, "pol_descriptor.caps_optional");
POL_ASSERT(offsetof(pol_descriptor, name_ptr) == 32, "pol_descriptor.name_ptr");
POL_ASSERT(offsetof(pol_descriptor, name_len) == 36, "pol_descriptor.name_len");
POL_ASSERT(offsetof(pol_descriptor, version_ptr) == 40, "pol_descriptor.version_ptr");
POL_ASSERT(offsetof(pol_descriptor, version_len) == 44, "pol_descriptor.version_len");
POL_ASSERT(offsetof(pol_descriptor, record_bytes) == 48, "pol_descriptor.record_bytes");
POL_ASSERT(offsetof(pol_descriptor, header_bytes) == 52, "pol_descriptor.header_bytes");
POL_ASSERT(offsetof(pol_descriptor, reserved) == 56, "pol_descriptor.reserved");

/* pol_peer is a decode instance KV can be sent to. Indices start at 1; a record's peer 0 means none. */
typedef struct {
    uint32_t index; /* 0: What a record's peer names. */
    uint32_t state; /* 4: 0 not reachable, 1 usable, 2 refuses (draining, or full). */
    uint64_t backlog_bytes; /* 8: KV bytes marked for it and not yet acknowledged. */
    uint32_t link_bytes_per_us; /* 16: Measured rate, bytes a microsecond. 0: unknown. */
    uint32_t free_pages; /* 20: Free pages there, as last heard. */
    uint32_t running; /* 24: Sequences running there, as last heard. */
    uint32_t reserved; /* 28: Room for later minor versions. */
} pol_peer;
POL_ASSERT(sizeof(pol_peer) == 32, "size of pol_peer");
POL_ASSERT(offsetof(pol_peer, index) == 0, "pol_peer.index");
POL_ASSERT(offsetof(pol_peer, state) == 4, "pol_peer.state");
POL_ASSERT(offsetof(pol_peer, backlog_bytes) == 8, "pol_peer.backlog_bytes");
POL_ASSERT(offsetof(pol_peer, link_bytes_per_us) == 16, "pol_peer.link_bytes_per_us");
POL_ASSERT(offsetof(pol_peer, free_pages) == 20, "pol_peer.free_pages");
POL_ASSERT(offsetof(pol_peer, running) == 24, "pol_peer.running");
POL_ASSERT(offsetof(pol_peer, reserved) == 28, "pol_peer.reserved");

/* pol_tenant is one user of the engine, for policies that share it fairly. */
typedef struct {
    uint32_t index; /* 0: What a record's tenant names. */
    uint32_t weight_milli; /* 4: Share of the engine, 1000 = one. */
    uint64_t service_tokens; /* 8: Tokens computed for it so far. */
    uint32_t running; /* 16: Its requests that hold pages. */
    uint32_t waiting; /* 20: Its requests that wait. */
    uint32_t max_seqs; /* 24: Most of its requests that may hold pages. 0: no limit of its own. */
    uint32_t reserved; /* 28: Room for later minor versions. */
} pol_tenant;
POL_ASSERT(sizeof(pol_tenant) == 32, "size of pol_tenant");
POL_ASSERT(offsetof(pol_tenant, index) == 0, "pol_tenant.index");
POL_ASSERT(offsetof(pol_tenant, weight_milli) == 4, "pol_tenant.weight_milli");
POL_ASSERT(offsetof(pol_tenant, service_tokens) == 8, "pol_tenant.service_tokens");
POL_ASSERT(offsetof(pol_tenant, running) == 16, "pol_tenant.running");
POL_ASSERT(offsetof(pol_tenant, waiting) == 20, "pol_tenant.waiting");
POL_ASSERT(offsetof(pol_tenant, max_seqs) == 24, "pol_tenant.max_seqs");
POL_ASSERT(offsetof(pol_tenant, reserved) == 28, "pol_tenant.reserved");

/* pol_event is something that happened to a request, told to pol_observe after a step. */
typedef struct {
    uint16_t kind; /* 0: Event kind. */
    uint16_t reason; /* 2: Why, by kind. */
    uint32_t slot; /* 4: Slot that the request had. 0xFFFFFFFF: none yet. */
    uint64_t id; /* 8: Id of the request. */
    uint32_t tokens; /* 16: Tokens it concerns. */
    uint32_t us; /* 20: Duration, microseconds. */
    uint64_t extra; /* 24: By kind; 0 where none is given. */
} pol_event;
POL_ASSERT(sizeof(pol_event) == 32, "size of pol_event");
POL_ASSERT(offsetof(pol_event, kind) == 0, "pol_event.kind");
POL_ASSERT(offsetof(pol_event, reason) == 2, "pol_event.reason");
POL_ASSERT(offsetof(pol_event, slot) == 4, "pol_event.slot");
POL_ASSERT(offsetof(pol_event, id) == 8, "pol_event.id");
POL_ASSERT(offsetof(pol_event, tokens) == 16, "pol_event.tokens");
POL_ASSERT(offsetof(pol_event, us) == 20, "pol_event.us");
POL_ASSERT(offsetof(pol_event, extra) == 24, "pol_event.extra");

/* abi: end */

#define POL_TOKENS_AUTO 0xFFFFFFFFu /* as tokens: the host makes the chunk as long as it can */

/* ------------------------------------------------------------------------------------- errors */

static char pol_error_text_[512];
static uint32_t pol_error_len_;

static inline void pol_error_add_(const char *text) {
    while (*text && pol_error_len_ < sizeof pol_error_text_)
        pol_error_text_[pol_error_len_++] = *text++;
}

static inline void pol_error_add_int_(int64_t v) {
    char digits[24];
    uint32_t n = sizeof digits - 1;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    digits[n] = 0;
    do digits[--n] = (char)('0' + u % 10); while (u /= 10);
    if (v < 0) digits[--n] = '-';
    pol_error_add_(digits + n);
}

/* pol_fail keeps a message for the host's log and returns the code: `return pol_fail(POL_CODE_..., "why")`. */
static inline int pol_fail(int code, const char *why) {
    pol_error_len_ = 0;
    pol_error_add_(why);
    return code;
}

/* ------------------------------------------------------------------------------------- memory */

#ifdef __wasm__
extern uint8_t __heap_base;
static uintptr_t pol_next_;
#else
#ifndef POL_NATIVE_BYTES
#define POL_NATIVE_BYTES (16u << 20)
#endif
static uint64_t pol_native_[POL_NATIVE_BYTES / 8];
static size_t pol_next_;
#endif
static int pol_deciding_;

/* pol_take_ hands out zeroed memory, 16-aligned, that is never given back; 0 when there is no more. */
static inline void *pol_take_(size_t bytes) {
    if (bytes > (1u << 30)) return 0;
    bytes = (bytes + 15) & ~(size_t)15;
#ifdef __wasm__
    if (!pol_next_) pol_next_ = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
    uintptr_t end = pol_next_ + bytes, have = (uintptr_t)__builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + 65535) >> 16) == (size_t)-1) return 0;
    void *p = (void *)pol_next_;
    pol_next_ = end;
    return p;
#else
    if (bytes > sizeof pol_native_ - pol_next_) return 0;
    void *p = (uint8_t *)pol_native_ + pol_next_;
    pol_next_ += bytes;
    return p;
#endif
}

/* pol_alloc hands out zeroed memory, 16-aligned, for the life of the module. Only in init: 0 in decide. */
static inline void *pol_alloc(size_t bytes) { return pol_deciding_ ? 0 : pol_take_(bytes); }

typedef struct {
    void *at;
    uint32_t bytes;
} pol_region_;
static pol_region_ pol_regions_[POL_BUFFER_PEERS + 1];

static inline void *pol_buffer_(int32_t kind, uint32_t bytes) {
    if (kind < 0 || kind > POL_BUFFER_PEERS) return 0;
    pol_region_ *region = &pol_regions_[kind];
    if (region->at && bytes <= region->bytes) return region->at;
    void *at = pol_take_(bytes ? bytes : 16);
    if (at) region->at = at, region->bytes = bytes;
    return at;
}

/* ------------------------------------------------------------------------------------- settings */

#define POL_CONFIG_KEYS 32

/* pol_config is the operator's settings, a JSON object. Keys are asked for with their default and range. The first
 * thing wrong is kept and fails the load after init, as does a key nobody asked for: a typing mistake must not
 * pass in silence. */
typedef struct {
    const char *text;
    uint32_t len;
    int error;
    uint32_t n_asked;
    const char *asked[POL_CONFIG_KEYS];
} pol_config;

static inline int pol_config_error_(pol_config *c, const char *key, const char *why) {
    if (c->error) return c->error;
    pol_fail(0, "config: ");
    pol_error_add_(key);
    pol_error_add_(why);
    return c->error = POL_CODE_BAD_CONFIG;
}

static inline uint32_t pol_json_space_(const pol_config *c, uint32_t at) {
    while (at < c->len && (c->text[at] == ' ' || c->text[at] == '\t' || c->text[at] == '\n' || c->text[at] == '\r'))
        at++;
    return at;
}

/* pol_json_skip_ returns the end of the value at `at`, or 0 if there is none. */
static inline uint32_t pol_json_skip_(const pol_config *c, uint32_t at) {
    uint32_t depth = 0, start = at;
    for (; at < c->len; at++) {
        char ch = c->text[at];
        if (ch == '"') {
            for (at++; at < c->len && c->text[at] != '"'; at++)
                if (c->text[at] == '\\') at++;
            if (at >= c->len) return 0;
            if (depth == 0) return at + 1;
        } else if (ch == '{' || ch == '[') {
            depth++;
        } else if (ch == '}' || ch == ']') {
            if (depth == 0) return at > start ? at : 0;
            if (--depth == 0) return at + 1;
        } else if (depth == 0 && (ch == ',' || ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r')) {
            return at > start ? at : 0;
        }
    }
    return 0;
}

/* pol_json_next_ steps through the members of the object. `at` starts at 0; returns 1 for a member, 0 at the
 * end, -1 for something else than an object. */
static inline int pol_json_next_(const pol_config *c, uint32_t *at, uint32_t key[2], uint32_t value[2]) {
    uint32_t p = pol_json_space_(c, *at);
    char want = *at == 0 ? '{' : ',';
    if (p < c->len && c->text[p] == '}' && *at != 0) return 0;
    if (p >= c->len || c->text[p] != want) return -1;
    p = pol_json_space_(c, p + 1);
    if (want == '{' && p < c->len && c->text[p] == '}') return 0;
    if (p >= c->len || c->text[p] != '"') return -1;
    key[0] = p + 1;
    p = pol_json_skip_(c, p);
    if (!p) return -1;
    key[1] = p - 1;
    p = pol_json_space_(c, p);
    if (p >= c->len || c->text[p] != ':') return -1;
    value[0] = pol_json_space_(c, p + 1);
    value[1] = pol_json_skip_(c, value[0]);
    if (!value[1]) return -1;
    *at = value[1];
    return 1;
}

static inline int pol_json_is_(const pol_config *c, const uint32_t span[2], const char *word) {
    uint32_t at = span[0];
    while (at < span[1] && *word && c->text[at] == *word) at++, word++;
    return at == span[1] && !*word;
}

/* pol_config_find_ notes that the key is known and finds its value. */
static inline int pol_config_find_(pol_config *c, const char *key, uint32_t value[2]) {
    uint32_t at = 0, name[2];
    if (c->n_asked < POL_CONFIG_KEYS) c->asked[c->n_asked++] = key;
    for (;;) {
        int found = pol_json_next_(c, &at, name, value);
        if (found < 0) return pol_config_error_(c, "settings", " are not a JSON object"), 0;
        if (found == 0) return 0;
        if (pol_json_is_(c, name, key)) return 1;
    }
}

/* pol_config_int reads a whole number from lowest to highest; without the key it is standard. */
static inline int64_t pol_config_int(pol_config *c, const char *key, int64_t standard, int64_t lowest,
                                     int64_t highest) {
    uint32_t value[2];
    if (!pol_config_find_(c, key, value)) return standard;
    uint32_t at = value[0];
    int minus = c->text[at] == '-';
    uint64_t u = 0;
    at += (uint32_t)minus;
    int good = at < value[1] && value[1] - at <= 18;
    for (; at < value[1]; at++) {
        good = good && c->text[at] >= '0' && c->text[at] <= '9';
        u = u * 10 + (uint64_t)(c->text[at] - '0');
    }
    int64_t v = minus ? -(int64_t)u : (int64_t)u;
    if (good && v >= lowest && v <= highest) return v;
    if (!c->error) {
        pol_config_error_(c, key, " must be a whole number from ");
        pol_error_add_int_(lowest);
        pol_error_add_(" to ");
        pol_error_add_int_(highest);
    }
    return standard;
}

/* pol_config_bool reads true or false; without the key it is standard. */
static inline int pol_config_bool(pol_config *c, const char *key, int standard) {
    uint32_t value[2];
    if (!pol_config_find_(c, key, value)) return standard;
    if (pol_json_is_(c, value, "true")) return 1;
    if (pol_json_is_(c, value, "false")) return 0;
    pol_config_error_(c, key, " must be true or false");
    return standard;
}

/* pol_config_end_ refuses a key that nobody asked for. */
static inline int pol_config_end_(pol_config *c) {
    uint32_t at = 0, name[2], value[2], i;
    int found;
    while (!c->error && (found = pol_json_next_(c, &at, name, value)) != 0) {
        if (found < 0) return pol_config_error_(c, "settings", " are not a JSON object");
        for (i = 0; i < c->n_asked && !pol_json_is_(c, name, c->asked[i]); i++) {}
        if (i < c->n_asked) continue;
        pol_config_error_(c, "", "there is no setting ");
        for (; name[0] < name[1] && pol_error_len_ < sizeof pol_error_text_; name[0]++)
            pol_error_text_[pol_error_len_++] = c->text[name[0]];
    }
    return c->error;
}

/* ------------------------------------------------------------------------------- a step, an answer */

/* pol_step is what decide reads. Records by pol_at: the stride is the host's. */
typedef struct {
    const pol_header *header;
    const uint8_t *records;
    const uint32_t *changed; /* header->n_changed slots, ascending */
    uint32_t stride;
    const pol_tenant *tenants; /* header->n_tenants, by index; read by pol_tenant_of */
    const pol_peer *peers;     /* header->n_peers, from index 1; read by pol_peer_of */
} pol_step;

/* pol_out is what decide writes, by pol_run and pol_skip; the first entry is the most important. */
typedef struct {
    pol_decision *items;
    uint32_t len, cap;
} pol_out;

static inline const pol_record *pol_at(const pol_step *step, uint32_t slot) {
    return (const pol_record *)(const void *)(step->records + (size_t)slot * step->stride);
}

/* pol_tenant_of is the tenant that a record names, pol_peer_of its destination; 0 where the host shows no such table
 * (capabilities tenants and peers), and for peer 0, which is none. */
static inline const pol_tenant *pol_tenant_of(const pol_step *step, uint32_t tenant) {
    return tenant < step->header->n_tenants ? &step->tenants[tenant] : 0;
}
static inline const pol_peer *pol_peer_of(const pol_step *step, uint32_t peer) {
    return peer > 0 && peer <= step->header->n_peers ? &step->peers[peer - 1] : 0;
}

/* pol_live: the slot holds a request. pol_prefills: and there is prompt to compute, so that it can be run
 * with a chunk (waiting and prefilling requests). */
static inline int pol_live(const pol_record *r) { return (r->state & POL_STATE_LIVE) != 0; }
static inline int pol_prefills(const pol_record *r) {
    return (r->state & (POL_STATE_LIVE | POL_STATE_DECODING)) == POL_STATE_LIVE && r->remaining_prefill > 0;
}

/* pol_add appends one decision; 0 when the list is full. */
static inline int pol_add(pol_out *out, uint32_t slot, const pol_record *r, uint8_t action, uint32_t tokens,
                          uint16_t reason) {
    if (out->len >= out->cap) return 0;
    pol_decision *d = &out->items[out->len++];
    d->slot = slot;
    d->tokens = tokens;
    d->id_low = (uint32_t)r->id;
    d->action = action;
    d->reserved = 0;
    d->reason = reason;
    return 1;
}
static inline int pol_run(pol_out *out, uint32_t slot, const pol_record *r, uint32_t tokens) {
    return pol_add(out, slot, r, POL_ACTION_RUN, tokens, 0);
}
static inline int pol_skip(pol_out *out, uint32_t slot, const pol_record *r) {
    return pol_add(out, slot, r, POL_ACTION_SKIP, 0, 0);
}

/* pol_preset is how many entries another module has already answered, whose chunk lengths are all that this one is
 * asked for: out holds them, and only `tokens` of those with POL_ACTION_RUN may be changed, to 1 or more. 0: this
 * module selects, too. */
static inline uint32_t pol_preset(const pol_step *step, pol_out *out) {
    uint32_t n = step->header->n_preset;
    if (n > out->cap) n = out->cap;
    if (n) out->len = n;
    return n;
}

/* pol_preempt takes the pages of a running request that is not pinned; it is computed again later. Only with
 * POL_CAP_PREEMPT, and before the runs that it makes room for. */
static inline int pol_preempt(pol_out *out, uint32_t slot, const pol_record *r, uint16_t reason) {
    return pol_add(out, slot, r, POL_ACTION_PREEMPT_RECOMPUTE, 0, reason);
}

/* pol_chunks shares a step's prefill tokens among prompts: how much is left, and how long a chunk may be. */
typedef struct {
    uint32_t left, max, align;
} pol_chunks;

static inline pol_chunks pol_chunks_of(const pol_header *h) {
    pol_chunks c;
    c.left = h->token_budget > h->decode_tokens ? h->token_budget - h->decode_tokens : 0;
    c.max = h->chunk_max;
    c.align = h->chunk_align > 1 ? h->chunk_align : 1;
    return c;
}

/* pol_chunk takes the longest chunk for a prompt with this much remaining; 0: nothing fits. */
static inline uint32_t pol_chunk(pol_chunks *c, uint32_t remaining) {
    uint32_t n = remaining < c->max ? remaining : c->max;
    if (n > c->left) n = c->left;
    if (n < remaining && c->align > 1) n -= n % c->align;
    c->left -= n;
    return n;
}

/* pol_chunk_within is the longest chunk, at most chunk_max, with which the step should end within target_ns by the
 * engine's own cost figures: fixed + tokens * cost_token + tokens * (context + tokens / 2) * cost_ctx, the running
 * decodes included. context is what the prompt has already: cached, and computed. Without figures it is chunk_max. */
static inline uint32_t pol_chunk_within(const pol_header *h, uint32_t context, int64_t target_ns) {
    double left = (double)target_ns - h->cost_fixed_us * 1e3 - (double)h->decode_tokens * h->cost_token_ns;
    uint32_t low = 0, high = h->chunk_max; /* low fits */
    if (h->cost_token_ns == 0) return high;
    while (low < high) {
        uint32_t n = high - (high - low) / 2;
        double cost = (double)n * h->cost_token_ns + (double)n * (context + 0.5 * n) * h->cost_ctx_ps * 1e-3;
        if (cost <= left) low = n;
        else high = n - 1;
    }
    return low;
}

/* ------------------------------------------------------------------------------------------- pages */

/* pol_pages tells by the host's own rule whether a chunk will get its pages: one has to stay free for each request that
 * holds some, and an admission leaves the reserve free too unless nobody holds any. Decodes take theirs first: who wants
 * to be exact takes the pages_needed of each decoding record off `free` before the first question. */
typedef struct {
    uint32_t free, running, reserve, size;
} pol_pages;

static inline pol_pages pol_pages_of(const pol_header *h) {
    pol_pages p;
    p.free = h->free_pages;
    p.running = h->n_running;
    p.reserve = h->reserve_pages;
    p.size = h->page_tokens ? h->page_tokens : 1;
    return p;
}

/* pol_pages_needed is how many new pages the next `tokens` of a prompt take. */
static inline uint32_t pol_pages_needed(const pol_pages *p, const pol_record *r, uint32_t tokens) {
    uint64_t whole = (uint64_t)r->prompt_tokens + r->generated;
    uint64_t computed = whole > r->remaining_prefill ? whole - r->remaining_prefill : 0;
    uint64_t ends = (computed + tokens + p->size - 1) / p->size;
    /* A waiting request shares full pages only: of a page begun by another it needs a copy. */
    uint64_t has = (r->state & POL_STATE_RUNNING ? computed + p->size - 1 : computed) / p->size;
    return ends - has < r->pages_needed ? (uint32_t)(ends - has) : r->pages_needed;
}

/* pol_pages_take says whether the chunk fits, and if so takes its pages off. */
static inline int pol_pages_take(pol_pages *p, const pol_record *r, uint32_t tokens) {
    uint32_t need = pol_pages_needed(p, r, tokens), waits = (r->state & POL_STATE_RUNNING) == 0;
    uint64_t spare = waits ? 1 + (uint64_t)(p->running ? p->reserve : 0) : p->running;
    if (need > 0 || waits)
        if (need + spare > p->free) return 0;
    p->free -= need;
    p->running += waits;
    p->reserve += waits;
    return 1;
}

/* --------------------------------------------------------------------------------- tenants' counters */

/* pol_counters keeps how much service each tenant had, by its weight: the one with the least is next. A tenant that
 * comes back after a rest starts no lower than the least of those that are there: rest is not saved up. Tenants
 * beyond the number made room for share the last counter. */
typedef struct {
    int64_t *service; /* thousandths of a token at weight 1 */
    uint8_t *here;
    uint32_t tenants;
} pol_counters;

/* pol_counters_init takes memory for this many tenants, in init. 0, or an error code. */
static inline int pol_counters_init(pol_counters *c, uint32_t tenants) {
    c->tenants = tenants ? tenants : 1;
    c->service = (int64_t *)pol_alloc((size_t)c->tenants * 8);
    c->here = (uint8_t *)pol_alloc(c->tenants);
    return c->service && c->here ? 0 : pol_fail(POL_CODE_OUT_OF_MEMORY, "no memory for the tenants' counters");
}

static inline uint32_t pol_counters_at_(const pol_counters *c, uint32_t tenant) {
    return tenant < c->tenants ? tenant : c->tenants - 1;
}
static inline int64_t pol_counters_of(const pol_counters *c, uint32_t tenant) {
    return c->service[pol_counters_at_(c, tenant)];
}

/* pol_counters_enter: the tenant has requests. */
static inline void pol_counters_enter(pol_counters *c, uint32_t tenant) {
    uint32_t at = pol_counters_at_(c, tenant), i;
    int64_t least = INT64_MAX;
    if (c->here[at]) return;
    for (i = 0; i < c->tenants; i++)
        if (c->here[i] && c->service[i] < least) least = c->service[i];
    if (least != INT64_MAX && c->service[at] < least) c->service[at] = least;
    c->here[at] = 1;
}

/* pol_counters_leave: the tenant has no requests any more. */
static inline void pol_counters_leave(pol_counters *c, uint32_t tenant) { c->here[pol_counters_at_(c, tenant)] = 0; }

/* pol_counters_charge: that many tokens were computed for the tenant; its weight is in thousandths, 0 means 1000. */
static inline void pol_counters_charge(pol_counters *c, uint32_t tenant, uint32_t tokens, uint32_t weight_milli) {
    c->service[pol_counters_at_(c, tenant)] += (int64_t)tokens * 1000000 / (weight_milli ? weight_milli : 1000);
}

/* pol_counters_refund takes back what was charged at the same weight and not computed. */
static inline void pol_counters_refund(pol_counters *c, uint32_t tenant, uint32_t tokens, uint32_t weight_milli) {
    c->service[pol_counters_at_(c, tenant)] -= (int64_t)tokens * 1000000 / (weight_milli ? weight_milli : 1000);
}

/* ---------------------------------------------------------------------------------------- order */

/* pol_key orders requests: by first, then second, then id, all ascending. Ids are unique, so no two are equal. */
typedef struct {
    int64_t first, second;
    uint64_t id;
} pol_key;

/* pol_before is written without branches: fuel is charged for both sides of one. */
static inline int pol_before(const pol_key *a, const pol_key *b) {
    return (a->first < b->first) |
           ((a->first == b->first) &
            ((a->second < b->second) | ((a->second == b->second) & (a->id < b->id))));
}

/* pol_key_of says whether a record belongs into an order (1 or 0), and where. */
typedef int (*pol_key_of)(const pol_record *, pol_key *);

/* pol_order keeps slots in order from step to step, following the changed list: a step costs what changed, not what
 * waits. Read slots[0 .. len-1]. Keys must depend on the record alone, not on the time; a
 * request that ages at the same rate as all others keeps its place, so put the arrival into the key. */
typedef struct {
    uint32_t *slots; /* in order */
    uint32_t len, capacity;
    pol_key *keys;      /* by slot, of those that are in */
    uint8_t *in;        /* by slot */
    uint32_t *moved;    /* scratch: slots that leave, enter or change place */
    uint32_t *scratch_; /* for sorting */
} pol_order;

/* pol_order_init takes memory for this many slots (init's second argument). 0, or an error code. */
static inline int pol_order_init(pol_order *o, uint32_t slots) {
    o->len = 0;
    o->capacity = slots;
    o->slots = (uint32_t *)pol_alloc((size_t)slots * 4);
    o->keys = (pol_key *)pol_alloc((size_t)slots * sizeof(pol_key));
    o->in = (uint8_t *)pol_alloc(slots);
    o->moved = (uint32_t *)pol_alloc((size_t)slots * 4);
    o->scratch_ = (uint32_t *)pol_alloc((size_t)slots * 4);
    if (o->slots && o->keys && o->in && o->moved && o->scratch_) return 0;
    return pol_fail(POL_CODE_OUT_OF_MEMORY, "no memory for the order of all slots");
}

/* pol_order_find is the first place in slots[] whose key is not before k: where a part of the order begins. */
static inline uint32_t pol_order_find(const pol_order *o, const pol_key *k) {
    uint32_t low = 0, high = o->len;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (pol_before(&o->keys[o->slots[mid]], k)) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* pol_order_move_ gives one slot its new place. */
static inline void pol_order_move_(pol_order *o, uint32_t slot, int in, const pol_key *key) {
    if (o->in[slot]) {
        uint32_t at = pol_order_find(o, &o->keys[slot]);
        o->len--;
        __builtin_memmove(o->slots + at, o->slots + at + 1, (size_t)(o->len - at) * 4);
    }
    o->in[slot] = (uint8_t)in;
    if (!in) return;
    o->keys[slot] = *key;
    uint32_t at = pol_order_find(o, key);
    __builtin_memmove(o->slots + at + 1, o->slots + at, (size_t)(o->len - at) * 4);
    o->slots[at] = slot;
    o->len++;
}

/* pol_order_merge_ merges [a, mid) and [mid, end) into `to`. */
static inline void pol_order_merge_(const pol_key *keys, const uint32_t *a, const uint32_t *mid, const uint32_t *end,
                                    uint32_t *to) {
    const uint32_t *b = mid;
    if (b < end && pol_before(&keys[*b], &keys[mid[-1]])) { /* else they are in order as they stand */
        while (a < mid && b < end) {
            uint32_t x = *a, y = *b, second = (uint32_t)pol_before(&keys[y], &keys[x]);
            *to++ = second ? y : x;
            a += 1 - second;
            b += second;
        }
    }
    __builtin_memcpy(to, a, (size_t)(mid - a) * 4);
    __builtin_memcpy(to + (mid - a), b, (size_t)(end - b) * 4);
}

/* pol_order_sort_ sorts slots by their keys: runs of 8 by insertion, then merged. */
static inline void pol_order_sort_(const pol_order *o, uint32_t *slots, uint32_t n) {
    const pol_key *keys = o->keys;
    uint32_t *from = slots, *to = o->scratch_;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t slot = slots[i], j = i, start = i & ~7u;
        for (; j > start && pol_before(&keys[slot], &keys[slots[j - 1]]); j--) slots[j] = slots[j - 1];
        slots[j] = slot;
    }
    for (uint32_t width = 8; width < n; width *= 2) {
        for (uint32_t start = 0; start < n; start += 2 * width) {
            uint32_t mid = start + width < n ? start + width : n, end = mid + width < n ? mid + width : n;
            pol_order_merge_(keys, from + start, from + mid, from + end, to + start);
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != slots) __builtin_memcpy(slots, from, (size_t)n * 4);
}

/* pol_order_bulk_ does many moves at once: drop all that moved, sort those that stay in, merge. */
static inline void pol_order_bulk_(pol_order *o, const pol_step *step, uint32_t n_moved, pol_key_of key_of) {
    uint32_t kept = 0, added = 0;
    for (uint32_t i = 0; i < n_moved; i++) o->in[o->moved[i]] = 0;
    for (uint32_t i = 0; i < o->len; i++)
        if (o->in[o->slots[i]]) o->slots[kept++] = o->slots[i];
    for (uint32_t i = 0; i < n_moved; i++) {
        uint32_t slot = o->moved[i];
        if (!key_of(pol_at(step, slot), &o->keys[slot])) continue;
        o->in[slot] = 1;
        o->moved[added++] = slot;
    }
    pol_order_sort_(o, o->moved, added);
    o->len = kept + added;
    while (kept > 0 && added > 0) {
        uint32_t x = o->slots[kept - 1], y = o->moved[added - 1];
        uint32_t old = (uint32_t)pol_before(&o->keys[y], &o->keys[x]);
        o->slots[kept + added - 1] = old ? x : y;
        kept -= old;
        added -= 1 - old;
    }
    __builtin_memcpy(o->slots, o->moved, (size_t)added * 4);
}

/* pol_order_update follows the changed list. Once a step, first thing. 0, or an error code. */
static inline int pol_order_update(pol_order *o, const pol_step *step, pol_key_of key_of) {
    uint32_t n_moved = 0;
    if (step->header->flags & POL_FLAG_RESYNC) {
        __builtin_memset(o->in, 0, o->capacity);
        o->len = 0;
    }
    for (uint32_t i = 0; i < step->header->n_changed; i++) {
        uint32_t slot = step->changed[i];
        if (slot >= o->capacity || n_moved >= o->capacity)
            return pol_fail(POL_CODE_BAD_ARGUMENT, "the changed list names a slot beyond the table");
        pol_key key;
        int in = key_of(pol_at(step, slot), &key), was = o->in[slot];
        const pol_key *old = &o->keys[slot];
        if (in == was && (!in || (key.first == old->first && key.second == old->second && key.id == old->id)))
            continue;
        o->moved[n_moved++] = slot;
    }
    /* One by one costs a search and half a copy of the list each, many at once a walk along all of it. */
    if (n_moved > 16 + o->len / 128) {
        pol_order_bulk_(o, step, n_moved, key_of);
        return 0;
    }
    for (uint32_t i = 0; i < n_moved; i++) {
        pol_key key;
        int in = key_of(pol_at(step, o->moved[i]), &key);
        pol_order_move_(o, o->moved[i], in, &key);
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------- top k */

/* pol_top keeps the k first of any number offered: for keys that depend on the time, or on each other. Offer all,
 * then pol_top_sort, then read items[0 .. len-1]. */
typedef struct {
    pol_key key;
    uint32_t slot;
} pol_ranked;

typedef struct {
    pol_ranked *items; /* a heap, the last in order at 0, until sorted */
    uint32_t len, cap;
} pol_top;

/* pol_top_init takes memory for k entries; in init. 0, or an error code. */
static inline int pol_top_init(pol_top *t, uint32_t k) {
    t->len = 0;
    t->cap = k;
    t->items = (pol_ranked *)pol_alloc((size_t)k * sizeof(pol_ranked));
    return t->items ? 0 : pol_fail(POL_CODE_OUT_OF_MEMORY, "no memory for the first k");
}

static inline void pol_top_clear(pol_top *t) { t->len = 0; }

/* pol_top_sink_ lets an entry sink from `at` in a heap of n. */
static inline void pol_top_sink_(pol_ranked *heap, uint32_t n, uint32_t at, const pol_ranked *entry) {
    pol_ranked e = *entry;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n) break;
        if (child + 1 < n && pol_before(&heap[child].key, &heap[child + 1].key)) child++;
        if (!pol_before(&e.key, &heap[child].key)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = e;
}

static inline void pol_top_offer(pol_top *t, const pol_key *key, uint32_t slot) {
    pol_ranked e;
    e.key = *key;
    e.slot = slot;
    if (t->len == t->cap) {
        if (t->cap && pol_before(key, &t->items[0].key)) pol_top_sink_(t->items, t->len, 0, &e);
        return;
    }
    uint32_t at = t->len++;
    while (at > 0 && pol_before(&t->items[(at - 1) / 2].key, key)) {
        t->items[at] = t->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->items[at] = e;
}

static inline void pol_top_sort(pol_top *t) {
    for (uint32_t n = t->len; n > 1; n--) {
        pol_ranked last = t->items[n - 1];
        t->items[n - 1] = t->items[0];
        pol_top_sink_(t->items, n - 1, 0, &last);
    }
}

/* ------------------------------------------------------------------------------------------- log */

#ifdef __wasm__
POL_IMPORT("log") void pol_import_log_(int32_t level, const char *text, uint32_t len);
POL_IMPORT("log_level") int32_t pol_import_log_level_(void);
POL_IMPORT("granted") uint64_t pol_import_granted_(void);

/* pol_log writes a line to the engine's log; levels POL_LOG_DEBUG .. POL_LOG_ERROR. */
static inline void pol_log(int32_t level, const char *text) {
    uint32_t len = 0;
    while (text[len]) len++;
    pol_import_log_(level, text, len);
}
static inline int32_t pol_log_level(void) { return pol_import_log_level_(); }
static inline uint64_t pol_granted(void) { return pol_import_granted_(); }
#else
static inline void pol_log(int32_t level, const char *text) { (void)level, (void)text; }
static inline int32_t pol_log_level(void) { return POL_LOG_OFF; }
static inline uint64_t pol_granted(void) { return POL_CAP_CHUNK_LENGTHS; }
#endif

/* ----------------------------------------------------------------------------------- registration */

typedef int (*pol_init_fn)(pol_config *config, uint32_t slots);
typedef int (*pol_decide_fn)(const pol_step *step, pol_out *out);

static inline int32_t pol_init_(int32_t len, pol_init_fn init) {
    pol_config config;
    __builtin_memset(&config, 0, sizeof config);
    config.text = (const char *)pol_regions_[POL_BUFFER_CONFIG].at;
    config.len = config.text && len > 0 ? (uint32_t)len : 0;
    if (config.len == 0) config.text = "{}", config.len = 2;
    pol_deciding_ = 0;
    int code = init(&config, pol_regions_[POL_BUFFER_RECORDS].bytes / (uint32_t)sizeof(pol_record));
    pol_deciding_ = 1;
    if (code < 0) return code;
    return config.error ? config.error : pol_config_end_(&config);
}

static inline int32_t pol_decide_(const pol_header *header, pol_decide_fn decide) {
    if (header->magic != POL_MAGIC || header->header_size < sizeof(pol_header) ||
        header->record_stride < sizeof(pol_record) || header->decision_stride != sizeof(pol_decision))
        return pol_fail(POL_CODE_BAD_ARGUMENT, "the step header is not of ABI version 1");
    pol_step step;
    step.header = header;
    step.records = (const uint8_t *)(uintptr_t)header->records_ptr;
    step.changed = (const uint32_t *)(uintptr_t)header->changed_ptr;
    step.stride = header->record_stride;
    step.tenants = (const pol_tenant *)(uintptr_t)header->tenants_ptr;
    step.peers = (const pol_peer *)(uintptr_t)header->peers_ptr;
    pol_out out;
    out.items = (pol_decision *)(uintptr_t)header->decisions_ptr;
    out.len = 0;
    out.cap = header->decisions_cap;
    int code = decide(&step, &out);
    return code < 0 ? code : (int32_t)out.len;
}

typedef int (*pol_observe_fn)(const pol_event *events, uint32_t n);
typedef int32_t (*pol_save_fn)(uint8_t *to, uint32_t room);
typedef int (*pol_load_fn)(const uint8_t *from, uint32_t len, uint32_t version);

static inline int32_t pol_observe_(int32_t n, pol_observe_fn observe) {
    uint32_t most = pol_regions_[POL_BUFFER_EVENTS].bytes / (uint32_t)sizeof(pol_event);
    if (n < 0 || (uint32_t)n > most) return pol_fail(POL_CODE_BAD_ARGUMENT, "more events than fit their region");
    int code = observe((const pol_event *)pol_regions_[POL_BUFFER_EVENTS].at, (uint32_t)n);
    return code < 0 ? code : 0;
}

/* The state's region, as far as it is to be used. */
static inline uint32_t pol_state_room_(uint32_t bytes) {
    uint32_t have = pol_regions_[POL_BUFFER_STATE].bytes;
    return bytes < have ? bytes : have;
}

#define POL_DEFAULT_FLAGS (POL_DESC_WANTS_CHANGED | POL_DESC_SELECTS | POL_DESC_SETS_CHUNKS)
#define POL_DEFAULT_CAPS (POL_CAP_CHUNK_LENGTHS | POL_CAP_LOG)

/* POL_POLICY is the one registration line, at file scope. POL_POLICY_WITH also names descriptor flags,
 * required and optional capabilities. */
#define POL_POLICY(name, version, init, decide) \
    POL_POLICY_WITH(name, version, init, decide, POL_DEFAULT_FLAGS, 0, POL_DEFAULT_CAPS)

#define POL_POLICY_WITH(name, version, init, decide, flags, required, optional) \
    POL_POLICY_(name, version, init, decide, flags, required, optional, 0)

/* POL_POLICY_WITH_STATE registers a policy whose state is handed to the next copy of it when the operator swaps: with
 * other settings, or in a newer version. save writes at most room bytes and returns how many the state has; when it has
 * more, nothing needs to be written: it is asked again with more room. load takes up, before the first step, what an
 * earlier copy saved in that state version; after an error this copy starts fresh. Capability POL_CAP_STATE. */
#define POL_POLICY_WITH_STATE(name, version, init, decide, flags, required, optional, state_version_, save, load)   \
    POL_POLICY_(name, version, init, decide, flags, required, optional, state_version_)                             \
    POL_EXPORT("pol_save") int32_t pol_save(uint32_t room) {                                                        \
        return (save)((uint8_t *)pol_regions_[POL_BUFFER_STATE].at, pol_state_room_(room));                         \
    }                                                                                                               \
    POL_EXPORT("pol_load") int32_t pol_load(uint32_t len, uint32_t from) {                                          \
        int code = (load)((const uint8_t *)pol_regions_[POL_BUFFER_STATE].at, pol_state_room_(len), from);          \
        return code < 0 ? code : 0;                                                                                 \
    }

/* POL_OBSERVE, beside the registration line, names what hears of each step's events before decide: tokens, ends,
 * preemptions. Capability POL_CAP_EVENTS. */
#define POL_OBSERVE(observe) \
    POL_EXPORT("pol_observe") int32_t pol_observe(int32_t n) { return pol_observe_(n, observe); }

#define POL_POLICY_(name, version, init, decide, flags_, required, optional, state_)                    \
    static pol_descriptor pol_self_;                                                                    \
    POL_EXPORT("pol_abi_v1") const pol_descriptor *pol_abi_v1(void) {                                   \
        pol_descriptor *d = &pol_self_;                                                                 \
        d->magic = POL_MAGIC, d->size = sizeof *d, d->minor = POL_MINOR;                                \
        d->flags = (flags_), d->caps_required = (required), d->caps_optional = (optional);              \
        d->name_ptr = (uint32_t)(uintptr_t)(name), d->name_len = sizeof(name) - 1;                      \
        d->version_ptr = (uint32_t)(uintptr_t)(version), d->version_len = sizeof(version) - 1;          \
        d->record_bytes = sizeof(pol_record), d->header_bytes = sizeof(pol_header);                     \
        if (state_) d->state_version = (state_);                                                        \
        return d;                                                                                       \
    }                                                                                                   \
    POL_EXPORT("pol_buffer") void *pol_buffer(int32_t kind, uint32_t bytes) { return pol_buffer_(kind, bytes); } \
    POL_EXPORT("pol_init") int32_t pol_init(int32_t len) { return pol_init_(len, init); }               \
    POL_EXPORT("pol_decide") int32_t pol_decide(const pol_header *h) { return pol_decide_(h, decide); } \
    POL_EXPORT("pol_last_error") uint64_t pol_last_error(void) {                                        \
        return (uint64_t)(uintptr_t)pol_error_text_ << 32 | pol_error_len_;                             \
    }

#endif
