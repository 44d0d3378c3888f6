// SPDX-License-Identifier: AGPL-3.0-only
//
// The bench that one core is tested on: events in, checked actions out.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON 0xa5
#define EPOCH_STEP (UINT64_C(1) << 24)

struct core_rig rig;

static bool coordinates(void) {
    return rig.config.rank == 0;
}

// ---- open and close ----

struct sc_core_config core_rig_config(uint32_t rank, uint32_t world) {
    struct sc_core_config config;
    sc_core_config_init(&config);
    config.rank = rank;
    config.world = world;
    config.job = RIG_JOB;
    config.capacity_bytes = RIG_CAPACITY_BYTES;
    config.ledger_ops = 16;
    return config;
}

int core_rig_close(void **state) {
    (void)state;
    free(rig.core);
    rig.core = NULL;
    return 0;
}

void core_rig_open_config(const struct sc_core_config *config, uint64_t seed) {
    struct sc_config_fault fault;
    (void)core_rig_close(NULL);
    assert_int_equal(sc_core_config_check(config, &fault), SC_OK);
    memset(&rig, 0, sizeof rig);
    rig.config = *config;
    rig.now_ns = RIG_SECOND;
    rig.next_link = 100;
    rig.epoch = EPOCH_STEP;
    for (uint32_t r = 0; r < SC_WORLD_MAX; r++)
        rig.ranks[r].incarnation = 0xc0de0000u + r;
    void *block = malloc(sc_core_bytes(config));
    assert_non_null(block);
    memset(block, POISON, sc_core_bytes(config));
    rig.core = sc_core_init(block, config, seed);
}

void core_rig_open(uint32_t rank, uint32_t world) {
    const struct sc_core_config config = core_rig_config(rank, world);
    core_rig_open_config(&config, 42);
}

// ---- events ----

// Whatever the core wants to send can be put on the wire, and is read back as what it is.
static void compose_all(void) {
    static uint8_t wire[SC_FRAME_MAX_BYTES];
    for (uint32_t i = 0; i < rig.last.count; i++) {
        const struct sc_action *action = &rig.last.list[i];
        struct sc_frame *frame = &rig.sent[i];
        if (action->type != SC_ACTION_SEND)
            continue;
        memset(frame, POISON, sizeof *frame);
        sc_core_compose(rig.core, action, frame);
        if (frame->kind == SC_FRAME_COMMAND) {
            frame->u.command.data = wire;
            frame->u.command.bytes = 0;
        }
        size_t bytes = sc_frame_encode(frame, wire, sizeof wire), used = 0;
        const char *why = NULL;
        struct sc_frame back;
        assert_int_equal(sc_frame_decode(wire, bytes, bytes, &back, &used, &why), SC_OK);
        assert_int_equal(back.kind, action->kind);
    }
}

static sc_status feed(const struct sc_event *event) {
    assert_non_null(rig.core);
    memset(&rig.last, POISON, sizeof rig.last);
    rig.verdict = sc_core_step(rig.core, event, &rig.last);
    assert_true(rig.last.count <= SC_ACTIONS_MAX);
    compose_all();
    for (uint32_t i = 0; i < rig.last.count; i++)
        if (rig.last.list[i].type == SC_ACTION_COMM_CREATE)
            rig.epoch = rig.last.list[i].epoch;
    return rig.verdict;
}

sc_status core_rig_feed(struct sc_event event) {
    if (event.type != SC_EVENT_TICK)
        rig.now_ns += 1000;
    event.now_ns = rig.now_ns;
    return feed(&event);
}

sc_status core_rig_simple(enum sc_event_type type, uint64_t epoch) {
    return core_rig_feed((struct sc_event){.type = type, .epoch = epoch});
}

sc_status core_rig_start(void) {
    return core_rig_simple(SC_EVENT_START, 0);
}

sc_status core_rig_tick(void) {
    return core_rig_simple(SC_EVENT_TICK, 0);
}

sc_status core_rig_wait(uint64_t ns) {
    rig.now_ns += ns;
    return core_rig_tick();
}

static void ping_from_all(void) {
    for (uint32_t r = 0; r < rig.config.world; r++) {
        struct sc_frame ping = {.kind = SC_FRAME_PING, .epoch = 0};
        ping.u.ping.laggard = SC_RANK_NONE;
        ping.u.ping.state = SC_STATE_RENDEZVOUS;
        if (sc_core_link_of(rig.core, r) != 0)
            (void)core_rig_from(r, &ping);
    }
}

void core_rig_live(uint64_t ns) {
    const enum sc_state before = core_rig_view().state;
    const uint64_t end = rig.now_ns + ns;
    while (core_rig_view().state == before && rig.now_ns < end) {
        ping_from_all();
        uint64_t next = sc_core_deadline(rig.core);
        uint64_t beat = rig.now_ns + rig.config.timing.heartbeat_ns;
        next = next < beat ? next : beat;
        next = next < end ? next : end;
        rig.now_ns = next > rig.now_ns ? next : rig.now_ns;
        (void)core_rig_tick();
    }
}

sc_status core_rig_op(enum sc_event_type type, uint64_t number) {
    return core_rig_feed(
        (struct sc_event){.type = type, .epoch = rig.epoch, .u.op = {.number = number}});
}

sc_status core_rig_op_failed(uint64_t number, sc_status status) {
    return core_rig_feed((struct sc_event){.type = SC_EVENT_OP_FAILED,
                                           .epoch = rig.epoch,
                                           .u.op = {.number = number, .status = status}});
}

sc_status core_rig_comm_failed(sc_status status) {
    return core_rig_feed((struct sc_event){
        .type = SC_EVENT_COMM_FAILED, .epoch = rig.epoch, .u.comm_failed = {status}});
}

sc_status core_rig_comm_id(sc_status status) {
    static uint8_t id[SC_COMM_ID_BYTES];
    for (size_t i = 0; i < sizeof id && ++id[i] == 0; i++) // counts up: no two are alike
        ;
    return core_rig_feed((struct sc_event){.type = SC_EVENT_COMM_ID, .u.comm_id = {status, id}});
}

sc_status core_rig_captures(uint32_t held) {
    return core_rig_feed((struct sc_event){.type = SC_EVENT_CAPTURES, .u.captures = {held, 0}});
}

sc_status core_rig_close_core(bool final) {
    return core_rig_feed((struct sc_event){.type = SC_EVENT_CLOSE, .u.final = final});
}

static sc_status submit(uint64_t stream, uint32_t kind, uint64_t bytes) {
    return core_rig_feed((struct sc_event){
        .type = SC_EVENT_OP_SUBMIT,
        .epoch = rig.epoch,
        .u.submit = {.desc = {.kind = kind, .bytes = bytes},
                     .place = {.src = 0x10000, .dst = 0x10000, .stream = stream}}});
}

sc_status core_rig_submit(uint32_t kind, uint64_t bytes) {
    return submit(RIG_STREAM, kind, bytes);
}

sc_status core_rig_submit_on(uint64_t stream) {
    return submit(stream, SC_OP_ALL_REDUCE, 4096);
}

// ---- links and frames ----

static uint64_t link_up(bool incoming, uint8_t nonce[SC_NONCE_BYTES]) {
    struct sc_event event = {.type = SC_EVENT_LINK_UP};
    event.u.link_up.link = ++rig.next_link;
    event.u.link_up.incoming = incoming;
    memset(event.u.link_up.random, (int)(rig.next_link & 0xff), SC_NONCE_BYTES);
    if (nonce != NULL)
        memcpy(nonce, event.u.link_up.random, SC_NONCE_BYTES);
    (void)core_rig_feed(event);
    return rig.next_link;
}

uint64_t core_rig_accept(void) {
    return link_up(true, NULL);
}

sc_status core_rig_link_down(uint64_t link) {
    return core_rig_feed(
        (struct sc_event){.type = SC_EVENT_LINK_DOWN, .u.link_down = {link, SC_LINK_EOF}});
}

sc_status core_rig_frame(uint64_t link, const struct sc_frame *frame) {
    return core_rig_feed(
        (struct sc_event){.type = SC_EVENT_FRAME, .u.frame = {.link = link, .frame = frame}});
}

sc_status core_rig_from(uint32_t rank, const struct sc_frame *frame) {
    return core_rig_frame(rig.ranks[rank].link, frame);
}

sc_status core_rig_plain(uint32_t rank, enum sc_frame_kind kind, uint64_t epoch) {
    const struct sc_frame frame = {.kind = kind, .epoch = epoch};
    return core_rig_from(rank, &frame);
}

sc_status core_rig_abort_from(uint32_t rank, uint64_t epoch, sc_status code) {
    const struct sc_frame frame = {
        .kind = SC_FRAME_ABORT, .epoch = epoch, .u.cause = {.code = code, .suspect = rank}};
    return core_rig_from(rank, &frame);
}

sc_status core_rig_bye_from(uint32_t rank, sc_status code) {
    const struct sc_frame frame = {.kind = SC_FRAME_BYE,
                                   .u.cause = {.code = code, .suspect = rank}};
    return core_rig_from(rank, &frame);
}

sc_status core_rig_ping_from(uint32_t rank, uint64_t submitted, uint64_t started, uint64_t digest,
                             uint64_t want) {
    const struct sc_frame frame = {.kind = SC_FRAME_PING,
                                   .epoch = rig.epoch,
                                   .u.ping = {.submitted = submitted,
                                              .started = started,
                                              .digest = digest,
                                              .want = want,
                                              .state = SC_STATE_READY}};
    return core_rig_from(rank, &frame);
}

struct sc_frame core_rig_hello(uint32_t rank) {
    struct core_rig_rank *r = &rig.ranks[rank];
    struct sc_frame frame = {.kind = SC_FRAME_HELLO};
    frame.u.hello = (struct sc_hello){
        .job = rig.config.job,
        .incarnation = r->incarnation,
        .number = ++r->hello_number,
        .seen_epoch = r->seen_epoch,
        .ready_epoch = r->ready_epoch,
        .capacity_bytes = rig.config.capacity_bytes,
        .protocol = SC_PROTOCOL_VERSION,
        .rank = rank,
        .world = rig.config.world,
        .library = rig.config.library,
        .lanes = rig.config.lanes,
        .able = 1,
    };
    memcpy(frame.u.hello.nonce, r->nonce, SC_NONCE_BYTES);
    return frame;
}

void core_rig_connect(uint32_t rank) {
    struct core_rig_rank *r = &rig.ranks[rank];
    r->link = link_up(true, r->nonce);
    assert_memory_equal(expect_frame(SC_FRAME_CHALLENGE)->u.nonce, r->nonce, SC_NONCE_BYTES);
}

void core_rig_greet(uint32_t rank) {
    core_rig_connect(rank);
    const struct sc_frame hello = core_rig_hello(rank);
    assert_int_equal(core_rig_from(rank, &hello), SC_OK);
    (void)expect_frame(SC_FRAME_WELCOME);
}

void core_rig_dialled(void) {
    struct sc_frame challenge = {.kind = SC_FRAME_CHALLENGE};
    (void)expect_action(SC_ACTION_DIAL);
    rig.ranks[0].link = link_up(false, NULL);
    memset(challenge.u.nonce, 0x5c, SC_NONCE_BYTES);
    assert_int_equal(core_rig_from(0, &challenge), SC_OK);
    assert_memory_equal(expect_frame(SC_FRAME_HELLO)->u.hello.nonce, challenge.u.nonce,
                        SC_NONCE_BYTES);
}

void core_rig_welcome(void) {
    struct sc_frame welcome = {.kind = SC_FRAME_WELCOME};
    welcome.u.welcome.incarnation = rig.ranks[0].incarnation;
    welcome.u.welcome.timing = rig.config.timing;
    assert_int_equal(core_rig_from(0, &welcome), SC_OK);
    (void)expect_notice(SC_NOTICE_GREETED);
}

struct sc_frame core_rig_offer(uint64_t epoch) {
    struct sc_frame offer = {.kind = SC_FRAME_OFFER, .epoch = epoch};
    offer.u.offer.cause.suspect = SC_RANK_NONE;
    offer.u.offer.lane = SC_LANE_NCCL;
    offer.u.offer.world = rig.config.world;
    memset(offer.u.offer.id, 0x1d, SC_COMM_ID_BYTES);
    for (uint32_t r = 0; r < rig.config.world; r++)
        offer.u.offer.ranks[r].incarnation = rig.ranks[r].incarnation;
    return offer;
}

// ---- from a fresh core to a state ----

void core_rig_rendezvous(void) {
    assert_int_equal(core_rig_start(), SC_OK);
    if (!coordinates()) {
        core_rig_dialled();
        core_rig_welcome();
    }
    expect_state(rig.config.hold ? SC_STATE_IDLE : SC_STATE_RENDEZVOUS);
}

// From RENDEZVOUS: who is missing is greeted, the others say HELLO again.
static void form(void) {
    if (coordinates()) {
        for (uint32_t r = 1; r < rig.config.world; r++) {
            if (sc_core_link_of(rig.core, r) == 0) {
                core_rig_greet(r);
            } else {
                const struct sc_frame hello = core_rig_hello(r);
                assert_int_equal(core_rig_from(r, &hello), SC_OK);
            }
        }
        (void)expect_action(SC_ACTION_GET_ID);
        assert_int_equal(core_rig_comm_id(SC_OK), SC_OK);
    } else {
        if (sc_core_link_of(rig.core, 0) == 0) {
            core_rig_dialled();
            core_rig_welcome();
        }
        rig.epoch += EPOCH_STEP;
        const struct sc_frame offer = core_rig_offer(rig.epoch);
        assert_int_equal(core_rig_from(0, &offer), SC_OK);
    }
    (void)expect_action(SC_ACTION_COMM_CREATE);
    expect_state(SC_STATE_JOINING);
}

void core_rig_joining(void) {
    core_rig_rendezvous();
    form();
}

static void live(void) {
    assert_int_equal(core_rig_simple(SC_EVENT_COMM_READY, rig.epoch), SC_OK);
    if (coordinates())
        for (uint32_t r = 1; r < rig.config.world; r++)
            assert_int_equal(core_rig_plain(r, SC_FRAME_JOINED, rig.epoch), SC_OK);
    else
        assert_int_equal(core_rig_plain(0, SC_FRAME_GO, rig.epoch), SC_OK);
    expect_state(SC_STATE_READY);
    for (uint32_t r = 0; r < rig.config.world; r++)
        rig.ranks[r].seen_epoch = rig.ranks[r].ready_epoch = rig.epoch;
}

void core_rig_ready(void) {
    core_rig_joining();
    live();
}

void core_rig_clean(void) {
    assert_int_equal(core_rig_simple(SC_EVENT_COMM_GONE, rig.epoch), SC_OK);
}

void core_rig_recover(void) {
    core_rig_clean();
    core_rig_wait(rig.config.backoff_max_ns);
    form();
    live();
}
