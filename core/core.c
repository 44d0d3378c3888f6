// SPDX-License-Identifier: AGPL-3.0-only
//
// The block a core lives in, its names, and what it lets others see.
#include "core/inside.h"

#include <string.h>

static size_t ledger_offset(uint32_t world) {
    size_t bytes = sizeof(struct sc_core) + world * sizeof(struct sc_peer);
    return (bytes + 15u) & ~(size_t)15u;
}

size_t sc_core_bytes(const struct sc_core_config *config) {
    return ledger_offset(config->world) + sc_ledger_bytes(config->ledger_ops);
}

// splitmix64: enough for jitter and for numbers that must merely differ.
static uint64_t next_random(struct sc_core *c) {
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct sc_core *sc_core_init(void *memory, const struct sc_core_config *config, uint64_t seed) {
    struct sc_core *c = memory;
    memset(c, 0, sc_core_bytes(config));
    c->config = *config;
    c->random = seed;
    c->incarnation = next_random(c) | 1u; // never 0, which stands for nobody
    c->epoch_nonce = next_random(c) >> 40;
    c->ledger_offset = (uint32_t)ledger_offset(config->world);
    c->missing_at_ns = c->abort_clock_ns = SC_CORE_NEVER_NS;
    sc_ledger_init(ledger_of(c), config->ledger_ops);
    return c;
}

static uint64_t jitter(struct sc_core *c, uint64_t base_ns) {
    uint64_t half = base_ns / 2;
    return base_ns - (half != 0 ? next_random(c) % half : 0);
}

// At once the first time, then doubling with jitter.
uint64_t sc_core_backoff(struct sc_core *c, uint32_t failures) {
    if (failures == 0)
        return 0;
    uint32_t doublings = failures - 1 < 20 ? failures - 1 : 20;
    uint64_t base = c->config.backoff_min_ns << doublings;
    if (base > c->config.backoff_max_ns)
        base = c->config.backoff_max_ns;
    return jitter(c, base);
}

uint64_t sc_linked_mask(const struct sc_core *c) {
    uint64_t mask = 0;
    for (uint32_t r = 0; r < c->config.world; r++)
        mask |= (uint64_t)(c->peers[r].link != 0) << r;
    return mask;
}

void sc_act(struct sc_actions *out, enum sc_action_type type, uint64_t epoch) {
    PUSH(out, .type = type, .epoch = epoch);
}

void sc_act_send(struct sc_actions *out, enum sc_frame_kind kind, uint64_t mask, uint64_t epoch) {
    if (mask != 0)
        sc_actions_push(
            out,
            (struct sc_action){.type = SC_ACTION_SEND, .kind = kind, .mask = mask, .epoch = epoch});
}

// Whatever the reason for a PING, it tells all there is to tell.
void sc_act_ping(struct sc_core *c, uint64_t mask, struct sc_actions *out) {
    if (mask == 0)
        return;
    c->commands_told = c->commands_taken;
    sc_act_send(out, SC_FRAME_PING, mask, c->epoch);
}

void sc_act_send_link(struct sc_actions *out, enum sc_frame_kind kind, uint64_t link) {
    PUSH(out, .type = SC_ACTION_SEND, .kind = kind, .link = link);
}

void sc_act_drop(struct sc_actions *out, uint64_t link) {
    PUSH(out, .type = SC_ACTION_DROP, .link = link);
}

// ---- views ----

enum sc_state sc_core_state(const struct sc_core *c) {
    return (enum sc_state)c->state;
}

void sc_core_view(const struct sc_core *c, struct sc_core_view *out) {
    const struct sc_ledger *ledger = ledger_of(c);
    bool none = c->state == SC_STATE_IDLE || c->state == SC_STATE_RENDEZVOUS;
    *out = (struct sc_core_view){
        .state = (enum sc_state)c->state,
        .epoch = none ? 0 : c->epoch,
        .ready_epoch = c->ready_epoch,
        .incarnation = c->incarnation,
        .recoveries = c->recoveries,
        .submitted = ledger->submitted_seq,
        .started = ledger->started_seq,
        .completed = ledger->completed_seq,
        .agreed = c->agreed,
        .arrived = c->arrived,
        .passed = c->passed,
        .mark = c->mark,
        .captures = c->captures != 0 ? c->captures : c->graphs,
        .draining = c->state == SC_STATE_ABORTING && sc_ledger_waits(ledger),
        .cause = c->cause,
        .phases = c->phases,
    };
}

sc_status sc_core_peer_view(const struct sc_core *c, uint32_t rank, struct sc_peer_view *out) {
    if (rank >= c->config.world || rank == c->config.rank)
        return SC_INVALID;
    const struct sc_peer *p = &c->peers[rank];
    *out = (struct sc_peer_view){
        .heard_ns = p->link != 0 ? p->heard_ns : 0,
        .incarnation = p->incarnation,
        .submitted = p->submitted,
        .completed = p->completed,
        .mark = p->mark,
        .state = p->state,
        .loading = p->loading,
    };
    return SC_OK;
}

sc_status sc_core_take_recovery(struct sc_core *c, struct sc_recovery *out) {
    if (c->state != SC_STATE_READY)
        return SC_STATE;
    *out = (struct sc_recovery){.size = sizeof *out,
                                .world = c->config.world,
                                .epoch = c->epoch,
                                .cause = c->cause,
                                .phases = c->phases};
    for (uint32_t r = 0; r < c->config.world; r++) {
        struct sc_peer *p = &c->peers[r];
        out->ranks[r] = p->record;
        out->ranks[r].fresh = p->record.incarnation != p->taken_incarnation;
        p->taken_incarnation = p->record.incarnation;
    }
    return SC_OK;
}

const uint8_t *sc_core_comm_id(const struct sc_core *c) {
    return c->id;
}

uint64_t sc_core_link_of(const struct sc_core *c, uint32_t rank) {
    return rank < c->config.world ? c->peers[rank].link : 0;
}

const struct sc_ledger *sc_core_ledger(const struct sc_core *c) {
    return ledger_of(c);
}

// ---- names ----

const char *sc_state_name(enum sc_state state) {
    static const char *const names[SC_STATE_COUNT] = {
        [SC_STATE_IDLE] = "idle",         [SC_STATE_RENDEZVOUS] = "rendezvous",
        [SC_STATE_JOINING] = "joining",   [SC_STATE_READY] = "ready",
        [SC_STATE_ABORTING] = "aborting", [SC_STATE_FAILED] = "failed",
        [SC_STATE_CLOSED] = "closed",
    };
    return (unsigned)state < SC_STATE_COUNT ? names[state] : "unknown";
}

const char *sc_event_name(enum sc_event_type type) {
    static const char *const names[SC_EVENT_COUNT] = {
#define SC_EVENT_NAME(name) #name,
        SC_EVENTS(SC_EVENT_NAME)
#undef SC_EVENT_NAME
    };
    return (unsigned)type < SC_EVENT_COUNT ? names[type] : "UNKNOWN";
}

const char *sc_action_name(enum sc_action_type type) {
    static const char *const names[SC_ACTION_COUNT] = {
#define SC_ACTION_NAME(name) #name,
        SC_ACTIONS(SC_ACTION_NAME)
#undef SC_ACTION_NAME
    };
    return (unsigned)type < SC_ACTION_COUNT ? names[type] : "UNKNOWN";
}
