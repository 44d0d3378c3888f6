// SPDX-License-Identifier: AGPL-3.0-only
//
// Random events that a pump could feed, and the miniature pump that keeps them possible.
#include "tests/support/core_storm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define EPOCH_STEP (UINT64_C(1) << 24)

uint32_t storm_below(struct storm *s, uint32_t limit) { // xorshift64*
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (uint32_t)((s->random * 0x2545f4914f6cdd1du) >> 33) % limit;
}

static bool chance(struct storm *s, uint32_t percent) {
    return storm_below(s, 100) < percent;
}

void storm_begin(struct storm *s, const struct sc_core_config *config, uint64_t seed) {
    memset(s, 0, offsetof(struct storm, reached));
    s->config = *config;
    s->random = seed | 1u;
    s->now_ns = MS;
    s->next_link = 1;
}

static bool coordinates(const struct storm *s) {
    return s->config.rank == 0;
}

static enum sc_state state_of(const struct storm *s) {
    struct sc_core_view view;
    sc_core_view(s->core, &view);
    return view.state;
}

// ---- links ----

static struct sc_event tick(void) {
    return (struct sc_event){.type = SC_EVENT_TICK};
}

static struct storm_link *known(struct storm *s, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < STORM_LINKS; i++)
        if (s->links[i].handle == handle)
            return &s->links[i];
    return NULL;
}

static struct storm_link *some_link(struct storm *s) {
    uint32_t first = storm_below(s, STORM_LINKS);
    for (uint32_t i = 0; i < STORM_LINKS; i++)
        if (s->links[(first + i) % STORM_LINKS].handle != 0)
            return &s->links[(first + i) % STORM_LINKS];
    return NULL;
}

static uint32_t rank_of_link(const struct storm *s, uint64_t handle) {
    for (uint32_t r = 0; r < s->config.world; r++)
        if (sc_core_link_of(s->core, r) == handle)
            return r;
    return SC_RANK_NONE;
}

static struct sc_event link_up(struct storm *s) {
    struct sc_event event = {.type = SC_EVENT_LINK_UP};
    struct storm_link *link = NULL;
    for (uint32_t i = 0; i < STORM_LINKS && link == NULL; i++)
        link = s->links[i].handle == 0 ? &s->links[i] : NULL;
    if (link == NULL)
        return tick();
    link->handle = s->next_link++;
    link->challenged = false;
    memset(link->nonce, (int)(link->handle & 0xff), sizeof link->nonce);
    s->dialling = false;
    event.u.link_up.link = link->handle;
    event.u.link_up.incoming = coordinates(s);
    memcpy(event.u.link_up.random, link->nonce, sizeof link->nonce);
    return event;
}

static struct sc_event link_down(struct storm *s) {
    struct sc_event event = {.type = SC_EVENT_LINK_DOWN, .u.link_down = {0, SC_LINK_EOF}};
    struct storm_link *link = some_link(s);
    if (s->dialling && chance(s, 50)) {
        s->dialling = false;
    } else if (link != NULL) {
        event.u.link_down.link = link->handle;
        event.u.link_down.status = chance(s, 20) ? SC_PROTOCOL : SC_LINK_EOF;
        link->handle = 0;
    } else {
        event.type = SC_EVENT_TICK;
    }
    return event;
}

// ---- frames ----

static uint64_t some_epoch(struct storm *s) {
    return chance(s, 80) ? s->epoch : s->epoch + EPOCH_STEP * storm_below(s, 3);
}

static struct sc_cause some_cause(struct storm *s) {
    return (struct sc_cause){
        .code = 1 + storm_below(s, SC_STATUS_COUNT - 1),
        .suspect = chance(s, 70) ? storm_below(s, SC_WORLD_MAX) : SC_RANK_NONE,
        .seq = storm_below(s, 20),
        .field = storm_below(s, SC_FIELD_COUNT),
    };
}

static uint32_t some_bytes(struct storm *s) {
    static const uint32_t bytes[] = {0, 1, 100, 5000, SC_COMMAND_MAX_BYTES};
    return bytes[storm_below(s, 5)];
}

static void hello(struct storm *s, const struct storm_link *link, struct sc_hello *h) {
    uint32_t rank = rank_of_link(s, link->handle);
    bool greeted = rank != SC_RANK_NONE;
    if (!greeted)
        rank = 1 + storm_below(s, s->config.world > 1 ? s->config.world - 1 : 1);
    if (chance(s, greeted ? 1 : 20))
        s->generation[rank]++;
    uint64_t seen = chance(s, 60) ? s->epoch : 0;
    *h = (struct sc_hello){
        .job = s->config.job + chance(s, 1),
        .incarnation = 1000 * rank + s->generation[rank],
        .number = ++s->hello_number - (chance(s, 3) ? 5 : 0),
        .seen_epoch = seen,
        .ready_epoch = chance(s, 50) ? seen : 0,
        .submitted = 4,
        .completed = storm_below(s, chance(s, 1) ? 9 : 4),
        .capacity_bytes = s->config.capacity_bytes,
        .protocol = SC_PROTOCOL_VERSION,
        .rank = chance(s, 98) ? rank : storm_below(s, 70),
        .world = s->config.world,
        .library = s->config.library,
        .lanes = s->config.lanes,
        .able = chance(s, 90),
    };
    memcpy(h->nonce, link->nonce, sizeof h->nonce);
    h->nonce[0] = (uint8_t)(h->nonce[0] + chance(s, 1));
}

static bool is_mad(struct storm *s) {
    return storm_below(s, 300) == 0;
}

// A coordinator claims no barrier that its member has not arrived at, unless it is mad.
static uint64_t some_barrier(struct storm *s) {
    struct sc_core_view view;
    sc_core_view(s->core, &view);
    if (coordinates(s))
        return storm_below(s, 20);
    if (is_mad(s))
        return view.arrived + 1;
    return chance(s, 50) ? view.passed : view.arrived;
}

// A member claims no more than it was sent, unless it is mad.
static uint64_t some_taken(struct storm *s) {
    if (is_mad(s))
        return s->commands_sent + 1;
    uint64_t taken = chance(s, 50) ? s->commands_sent : s->commands_sent / 2;
    s->commands_taken = taken > s->commands_taken ? taken : s->commands_taken;
    return taken;
}

static void ping(struct storm *s, struct sc_ping *p) {
    const struct sc_ledger *ledger = sc_core_ledger(s->core);
    p->submitted = chance(s, 70) ? ledger->submitted_seq : storm_below(s, 40);
    p->digest = chance(s, 90) && p->submitted == ledger->submitted_seq ? ledger->digest : 9;
    p->started = p->submitted - storm_below(s, (uint32_t)(p->submitted % 8) + 1);
    p->completed = p->started - storm_below(s, (uint32_t)(p->started % 4) + 1);
    p->want = chance(s, 20) ? p->submitted : 0;
    p->agreed = p->all_started = p->started;
    p->barrier = some_barrier(s);
    p->taken = some_taken(s);
    p->pair = (struct sc_pair){storm_below(s, s->config.world), storm_below(s, SC_WORLD_MAX),
                               storm_below(s, 3)};
    p->laggard = chance(s, 80) ? storm_below(s, SC_WORLD_MAX) : SC_RANK_NONE;
    p->state = storm_below(s, SC_STATE_COUNT);
}

static void describe(struct storm *s, struct sc_describe *d) {
    d->first = 1 + storm_below(s, 20);
    d->count = storm_below(s, SC_DESCRIBE_MAX + 1);
    for (uint32_t i = 0; i < d->count; i++) {
        const struct sc_ledger_seq *own = sc_ledger_seq(sc_core_ledger(s->core), d->first + i);
        d->op[i] = own != NULL && chance(s, 95) ? own->desc : (struct sc_op_desc){0, 0, 2};
    }
}

static void fill(struct storm *s, const struct storm_link *link, struct sc_frame *f) {
    switch ((enum sc_frame_kind)f->kind) {
    case SC_FRAME_CHALLENGE: memcpy(f->u.nonce, link->nonce, sizeof link->nonce); break;
    case SC_FRAME_HELLO: hello(s, link, &f->u.hello); break;
    case SC_FRAME_WELCOME:
        f->u.welcome.incarnation = 1 + storm_below(s, 3);
        f->u.welcome.timing = s->config.timing;
        f->u.welcome.timing.init_ns *= chance(s, 98);
        break;
    case SC_FRAME_REFUSE:
    case SC_FRAME_ABORT:
    case SC_FRAME_BYE: f->u.cause = some_cause(s); break;
    case SC_FRAME_OFFER:
        f->epoch = chance(s, 95) ? s->epoch + EPOCH_STEP : s->epoch;
        f->u.offer.world = chance(s, 98) ? s->config.world : storm_below(s, SC_WORLD_MAX + 1);
        f->u.offer.cause.suspect = SC_RANK_NONE;
        break;
    case SC_FRAME_PING: ping(s, &f->u.ping); break;
    case SC_FRAME_QUERY: f->u.first = storm_below(s, 30); break;
    case SC_FRAME_DESCRIBE: describe(s, &f->u.describe); break;
    case SC_FRAME_COMMAND: f->u.command.bytes = some_bytes(s); break;
    default: break;
    }
}

static struct sc_event frame(struct storm *s, const struct storm_link *link,
                             enum sc_frame_kind kind) {
    memset(&s->frame, 0, sizeof s->frame);
    s->frame.kind = kind;
    s->frame.epoch = some_epoch(s);
    fill(s, link, &s->frame);
    return (struct sc_event){
        .type = SC_EVENT_FRAME,
        .u.frame = {.link = link->handle, .frame = &s->frame, .ended = chance(s, 2)}};
}

static struct sc_event some_frame(struct storm *s) {
    static const enum sc_frame_kind likely[2][5] = {
        {SC_FRAME_PING, SC_FRAME_JOINED, SC_FRAME_HELLO, SC_FRAME_DESCRIBE, SC_FRAME_PING},
        {SC_FRAME_PING, SC_FRAME_GO, SC_FRAME_OFFER, SC_FRAME_QUERY, SC_FRAME_PING}};
    const struct storm_link *link = some_link(s);
    if (link == NULL)
        return tick();
    if (chance(s, 30))
        return frame(s, link, (enum sc_frame_kind)storm_below(s, SC_FRAME_KIND_COUNT));
    return frame(s, link, likely[!coordinates(s)][storm_below(s, 5)]);
}

// ---- the device ----

static struct sc_event comm_event(struct storm *s) {
    struct sc_event event = {.type = SC_EVENT_TICK, .epoch = s->epoch};
    if (s->id_pending) {
        s->id_pending = false;
        s->id[storm_below(s, SC_COMM_ID_BYTES)]++;
        event.type = SC_EVENT_COMM_ID;
        event.u.comm_id.status = chance(s, 97) ? SC_OK : SC_DEVICE_ERROR;
        event.u.comm_id.id = s->id;
    } else if (s->comm == STORM_FORMING && chance(s, 90)) {
        s->comm = STORM_LIVE;
        event.type = SC_EVENT_COMM_READY;
        event.u.comm_ready.formed_ns = s->now_ns + MS - storm_below(s, 2 * (uint32_t)MS);
    } else if (s->comm == STORM_ABORTING && chance(s, 80)) {
        s->comm = STORM_NONE;
        event.type = SC_EVENT_COMM_GONE;
    } else if (s->comm != STORM_NONE && !s->comm_failed && chance(s, 20)) {
        s->comm_failed = true;
        event.type = SC_EVENT_COMM_FAILED;
        event.u.comm_failed.status = chance(s, 80) ? SC_ASYNC_ERROR : SC_CONTEXT_LOST;
    }
    return event;
}

static struct sc_event op_event(struct storm *s) {
    struct sc_event event = {.type = SC_EVENT_TICK};
    struct storm_op *op = &s->ops[0];
    for (uint32_t i = 1; i < STORM_OPS; i++)
        if (op->number == 0 || (s->ops[i].number != 0 && chance(s, 30)))
            op = &s->ops[i];
    if (op->number == 0)
        return event;
    event.epoch = op->epoch;
    event.u.op.number = op->number;
    if (chance(s, 1)) {
        event.type = SC_EVENT_OP_FAILED;
        event.u.op.status = chance(s, 50)   ? SC_INPROGRESS
                            : chance(s, 80) ? SC_SUBMIT_FAILED
                                            : SC_CONTEXT_LOST;
    } else if (!op->started) {
        event.type = SC_EVENT_OP_STARTED;
        op->started = true;
    } else {
        event.type = SC_EVENT_OP_DONE;
        op->number = 0;
    }
    return event;
}

// ---- the application ----

static struct sc_op_desc some_op(struct storm *s) {
    return (struct sc_op_desc){storm_below(s, SC_OP_KIND_COUNT), storm_below(s, s->config.world),
                               2 * storm_below(s, 64)};
}

static struct sc_event application_event(struct storm *s) {
    static const enum sc_event_type types[] = {
        SC_EVENT_OP_SUBMIT,    SC_EVENT_OP_SUBMIT, SC_EVENT_OP_SUBMIT, SC_EVENT_OP_SUBMIT,
        SC_EVENT_REPLAY,       SC_EVENT_SYNC,      SC_EVENT_COMMAND,   SC_EVENT_MARK,
        SC_EVENT_CAPTURES,     SC_EVENT_JOIN,      SC_EVENT_RECONNECT, SC_EVENT_BARRIER,
        SC_EVENT_COMMAND_TAKEN};
    struct sc_event event = {.type = types[storm_below(s, sizeof types / sizeof types[0])],
                             .epoch = some_epoch(s)};
    if (event.type == SC_EVENT_OP_SUBMIT) {
        event.u.submit.desc = some_op(s);
        event.u.submit.place = (struct sc_op_place){2, 2, storm_below(s, 20)};
    } else if (event.type == SC_EVENT_REPLAY) {
        for (uint32_t i = 0; i < 3; i++)
            s->list[i] = some_op(s);
        event.u.replay.list = s->list;
        event.u.replay.count = storm_below(s, 4);
        event.u.replay.stream = storm_below(s, 20);
    } else if (event.type == SC_EVENT_SYNC) {
        event.u.sync.seq = storm_below(s, (uint32_t)sc_core_ledger(s->core)->submitted_seq + 2);
    } else if (event.type == SC_EVENT_COMMAND) {
        s->command_bytes = some_bytes(s);
        event.u.command.bytes = s->command_bytes;
        event.u.command.room = chance(s, 95);
    } else if (event.type == SC_EVENT_COMMAND_TAKEN) {
        event.u.taken = sc_command_cost(some_bytes(s));
    } else if (event.type == SC_EVENT_MARK) {
        event.u.mark = storm_below(s, 1000);
    } else if (event.type == SC_EVENT_CAPTURES) {
        event.u.captures.held = storm_below(s, 3);
    } else if (event.type == SC_EVENT_RECONNECT && chance(s, 90)) {
        event.type = SC_EVENT_TICK;
    }
    return event;
}

// A link that no rank holds, or NULL.
static struct storm_link *ungreeted(struct storm *s) {
    for (uint32_t i = 0; i < STORM_LINKS; i++)
        if (s->links[i].handle != 0 && rank_of_link(s, s->links[i].handle) == SC_RANK_NONE)
            return &s->links[i];
    return NULL;
}

// Greets who is missing; then whoever it may be says what comes next.
static struct sc_event help_coordinator(struct storm *s, enum sc_state state) {
    struct storm_link *link = ungreeted(s);
    for (uint32_t r = 1; r < s->config.world; r++)
        if (sc_core_link_of(s->core, r) == 0)
            return link != NULL ? frame(s, link, SC_FRAME_HELLO) : link_up(s);
    if (s->config.world == 1)
        return tick();
    link = known(s, sc_core_link_of(s->core, 1 + storm_below(s, s->config.world - 1)));
    if (link == NULL)
        return tick();
    return frame(s, link,
                 state == SC_STATE_RENDEZVOUS ? SC_FRAME_HELLO
                 : state == SC_STATE_JOINING  ? SC_FRAME_JOINED
                                              : SC_FRAME_PING);
}

static struct sc_event help_member(struct storm *s, enum sc_state state) {
    struct storm_link *link = known(s, sc_core_link_of(s->core, 0));
    if (link != NULL)
        return frame(s, link,
                     state == SC_STATE_RENDEZVOUS ? SC_FRAME_OFFER
                     : state == SC_STATE_JOINING  ? SC_FRAME_GO
                                                  : SC_FRAME_PING);
    link = ungreeted(s);
    if (link == NULL)
        return s->dialling ? link_up(s) : tick();
    link->challenged = !link->challenged;
    return frame(s, link, link->challenged ? SC_FRAME_CHALLENGE : SC_FRAME_WELCOME);
}

// What moves a core on towards READY.
static struct sc_event helpful_event(struct storm *s) {
    enum sc_state state = state_of(s);
    if (s->id_pending || s->comm == STORM_FORMING || s->comm == STORM_ABORTING)
        return comm_event(s);
    if (state == SC_STATE_ABORTING && chance(s, 50))
        return (struct sc_event){.type = SC_EVENT_CAPTURES};
    if (state == SC_STATE_IDLE && chance(s, 5))
        return (struct sc_event){.type = SC_EVENT_JOIN};
    return coordinates(s) ? help_coordinator(s, state) : help_member(s, state);
}

// Whether somebody is greeted: a leap to the next deadline ends no handshake then.
static bool somebody_is_greeted(const struct storm *s) {
    for (uint32_t r = 0; r < s->config.world; r++)
        if (sc_core_link_of(s->core, r) != 0)
            return true;
    return false;
}

static struct sc_event choose(struct storm *s) {
    uint32_t dice = storm_below(s, 1000);
    if (!s->started) {
        s->started = true;
        return (struct sc_event){.type = SC_EVENT_START};
    }
    if (dice < 400)
        return helpful_event(s);
    if (dice < 640)
        return application_event(s);
    if (dice < 850)
        return op_event(s);
    if (dice < 860)
        return some_frame(s);
    if (dice < 866)
        return comm_event(s);
    if (dice < 871)
        return s->listening || s->dialling ? link_up(s) : tick();
    if (dice < 874)
        return link_down(s);
    if (dice < 875 && chance(s, 50))
        return (struct sc_event){.type = SC_EVENT_CLOSE, .u.final = chance(s, 50)};
    return tick();
}

struct sc_event storm_event(struct storm *s) {
    struct sc_event event = choose(s);
    uint64_t deadline = sc_core_deadline(s->core);
    s->now_ns += storm_below(s, (uint32_t)MS);
    if (event.type == SC_EVENT_TICK && deadline != SC_CORE_NEVER_NS && deadline > s->now_ns &&
        chance(s, somebody_is_greeted(s) ? 30 : 4))
        s->now_ns = deadline;
    event.now_ns = s->now_ns;
    s->reached[event.type][state_of(s)]++;
    return event;
}
