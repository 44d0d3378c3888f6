// SPDX-License-Identifier: AGPL-3.0-only
//
// Which handler answers which event in which state, and which frame.
//
// A cell that no correct pump can reach points to sc_never, which ends the process: it is
// our own defect. A frame that no correct peer would send points to sc_breach, which drops its link:
// what comes from outside is never an assertion.
#include "core/inside.h"

#include <string.h>

#define STATES SC_STATE_COUNT

static sc_status sc_never(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)c, (void)in, (void)out;
    sc_assert_fail("this event can happen in this state", __FILE__, __LINE__);
}

static sc_status sc_ignore(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)c, (void)in, (void)out;
    return SC_OK;
}

static sc_status sc_breach(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)c, (void)in, (void)out;
    return SC_PROTOCOL;
}

static sc_status sc_drop_link(struct sc_core *c, const struct sc_event *in,
                              struct sc_actions *out) {
    (void)c;
    sc_act_drop(out, in->u.link_up.link);
    return SC_OK;
}

static sc_status sc_remember_mark(struct sc_core *c, const struct sc_event *in,
                                  struct sc_actions *out) {
    (void)out;
    if (in->epoch != c->epoch)
        return SC_EPOCH_LOST;
    c->mark = in->u.mark;
    return SC_OK;
}

// An id whose epoch cannot be offered any more.
static sc_status sc_discard_id(struct sc_core *c, const struct sc_event *in,
                               struct sc_actions *out) {
    (void)in, (void)out;
    c->id_pending = 0;
    return SC_OK;
}

static sc_status sc_tick(struct sc_core *c, const struct sc_event *in, struct sc_actions *out) {
    (void)in;
    // One concern a pass: each may fill a good part of the action list, and what is left over is
    // still due, so that the deadline brings the next TICK at once.
    sc_greeting_tick(c, out);
    if (sc_actions_room(out) >= 12)
        sc_leaving_tick(c, out);
    if (sc_actions_room(out) >= 12)
        sc_health_tick(c, out);
    if (sc_actions_room(out) >= 4)
        sc_try_offer(c, out);
    return SC_OK;
}

static sc_status sc_frame_arrives(struct sc_core *c, const struct sc_event *in,
                                  struct sc_actions *out);

// clang-format off
#define ON(event, idle, rendezvous, joining, ready, aborting, failed, closed)                      \
    [SC_EVENT_##event] = {sc_##idle,     sc_##rendezvous, sc_##joining, sc_##ready,                \
                          sc_##aborting, sc_##failed,     sc_##closed}
static sc_handler *const cells[SC_EVENT_COUNT][STATES] = {
//                IDLE                RENDEZVOUS         JOINING             READY               ABORTING                   FAILED             CLOSED
ON(START,         start_making_links, never,             never,              never,              never,                     never,             never),
ON(JOIN,          join_makes_able,    ignore,            ignore,             ignore,             ignore,                    ignore,            ignore),
ON(TICK,          tick,               tick,              tick,               tick,               tick,                      tick,              ignore),
ON(LINK_UP,       link_up,            link_up,           link_up,            link_up,            link_up,                   link_up,           drop_link),
ON(LINK_DOWN,     link_down,          link_down,         link_down,          link_down,          link_down,                 link_down,         ignore),
ON(FRAME,         frame_arrives,      frame_arrives,     frame_arrives,      frame_arrives,      frame_arrives,             frame_arrives,     ignore),
ON(COMM_ID,       discard_id,         id_makes_offer,    never,              never,              never,                     discard_id,        discard_id),
ON(COMM_READY,    never,              ignore,            comm_ready_joins,   ignore,             ignore,                    ignore,            ignore),
ON(COMM_FAILED,   never,              ignore,            comm_failed_aborts, comm_failed_aborts, comm_failed_while_leaving, ignore,            ignore),
ON(COMM_GONE,     never,              ignore,            never,              never,              comm_gone_cleans,          ignore,            ignore),
ON(OP_SUBMIT,     submit_is_refused,  submit_is_refused, submit_is_refused,  submit_launches,    submit_is_refused,         submit_is_refused, submit_is_refused),
ON(REPLAY,        submit_is_refused,  submit_is_refused, submit_is_refused,  replay_launches,    submit_is_refused,         submit_is_refused, submit_is_refused),
ON(OP_STARTED,    never,              ignore,            ignore,             op_starts,          op_drains,                 ignore,            ignore),
ON(OP_DONE,       never,              ignore,            ignore,             op_completes,       op_drains,                 ignore,            ignore),
ON(OP_FAILED,     never,              ignore,            ignore,             op_fails,           op_drains,                 ignore,            ignore),
ON(CAPTURES,      captures_change,    captures_change,   captures_change,    captures_change,    captures_change,           captures_change,   ignore),
ON(COMMAND,       submit_is_refused,  submit_is_refused, submit_is_refused,  command_is_sent,    submit_is_refused,         submit_is_refused, submit_is_refused),
ON(COMMAND_TAKEN, submit_is_refused,  submit_is_refused, submit_is_refused,  commands_are_taken, submit_is_refused,         submit_is_refused, submit_is_refused),
ON(SYNC,          submit_is_refused,  submit_is_refused, submit_is_refused,  sync_asks,          submit_is_refused,         submit_is_refused, submit_is_refused),
ON(BARRIER,       submit_is_refused,  submit_is_refused, submit_is_refused,  barrier_arrives,    submit_is_refused,         submit_is_refused, submit_is_refused),
ON(MARK,          submit_is_refused,  submit_is_refused, submit_is_refused,  remember_mark,      submit_is_refused,         submit_is_refused, submit_is_refused),
ON(RECONNECT,     reconnect_leaves,   reconnect_leaves,  reconnect_leaves,   reconnect_leaves,   reconnect_leaves,          reconnect_leaves,  submit_is_refused),
ON(CLOSE,         close_leaves,       close_leaves,      close_leaves,       close_leaves,       close_leaves,              close_leaves,      close_leaves),
};

#define MEMBER 1      // who may send it: only members, to the coordinator
#define COORDINATOR 2 // only the coordinator, to a member
#define ANYONE 3
#define STRANGER 0 // … and on which links: also on one whose rank is not known yet
#define GREETED 1  // only on one whose rank is known
#define FROM(kind, from, link, idle, rendezvous, joining, ready, aborting, failed, closed)         \
    [SC_FRAME_##kind] = {from, link, {sc_##idle,     sc_##rendezvous, sc_##joining, sc_##ready,    \
                                      sc_##aborting, sc_##failed,     sc_##closed}}
static const struct {
    uint8_t from;
    uint8_t greeted;
    sc_handler *cells[STATES];
} frames[SC_FRAME_KIND_COUNT] = {
//                                     IDLE                   RENDEZVOUS             JOINING          READY                    ABORTING               FAILED           CLOSED
FROM(CHALLENGE, COORDINATOR, STRANGER, challenge_is_answered, challenge_is_answered, breach,          breach,                  challenge_is_answered, ignore,          ignore),
FROM(HELLO,     MEMBER,      STRANGER, hello_is_judged,       hello_is_judged,       hello_is_judged, hello_is_judged,         hello_is_judged,       hello_is_judged, ignore),
FROM(WELCOME,   COORDINATOR, STRANGER, welcome_greets,        welcome_greets,        breach,          breach,                  welcome_greets,        ignore,          ignore),
FROM(REFUSE,    COORDINATOR, STRANGER, refusal_is_heeded,     refusal_is_heeded,     breach,          breach,                  refusal_is_heeded,     ignore,          ignore),
FROM(OFFER,     COORDINATOR, GREETED,  breach,                offer_starts_joining,  breach,          breach,                  breach,                ignore,          ignore),
FROM(JOINED,    MEMBER,      GREETED,  ignore,                ignore,                joined_counts,   breach,                  ignore,                ignore,          ignore),
FROM(GO,        COORDINATOR, GREETED,  breach,                ignore,                go_makes_ready,  breach,                  ignore,                ignore,          ignore),
FROM(ABORT,     ANYONE,      GREETED,  ignore,                stray_abort_is_noted,  abort_is_heeded, abort_is_heeded,         stray_abort_is_noted,  ignore,          ignore),
FROM(PING,      ANYONE,      GREETED,  ping_is_heard,         ping_is_heard,         ping_is_heard,   ping_is_heard,           ping_is_heard,         ignore,          ignore),
FROM(QUERY,     COORDINATOR, GREETED,  ignore,                query_is_answered,     ignore,          query_is_answered,       query_is_answered,     ignore,          ignore),
FROM(DESCRIBE,  MEMBER,      GREETED,  ignore,                description_is_compared, ignore,        description_is_compared, description_is_compared, ignore,        ignore),
FROM(COMMAND,   COORDINATOR, GREETED,  command_is_late,       command_is_late,       command_is_late, command_is_received,     command_is_late,       ignore,          ignore),
FROM(BYE,       ANYONE,      GREETED,  bye_is_heeded,         bye_is_heeded,         bye_is_heeded,   bye_is_heeded,           bye_is_heeded,         ignore,          ignore),
};
// clang-format on

// A link that we let go of may still deliver what it had; a link that broke the protocol is dropped.
static sc_status sc_frame_arrives(struct sc_core *c, const struct sc_event *in,
                                  struct sc_actions *out) {
    const struct sc_frame *frame = in->u.frame.frame;
    uint64_t link = in->u.frame.link;
    SC_ASSERT(frame->kind < SC_FRAME_KIND_COUNT);
    struct sc_peer *peer = sc_peer_by_link(c, link);
    if (peer != NULL)
        peer->heard_ns = c->now_ns;
    bool may = (frames[frame->kind].from & (is_coordinator(c) ? MEMBER : COORDINATOR)) != 0 &&
               (peer != NULL || !frames[frame->kind].greeted);
    sc_status verdict =
        may ? frames[frame->kind].cells[c->state](c, in, out) : sc_breach(c, in, out);
    if (verdict != SC_PROTOCOL)
        return verdict;
    sc_act_drop(out, link);
    const struct sc_event down = {.type = SC_EVENT_LINK_DOWN,
                                  .u.link_down = {.link = link, .status = SC_PROTOCOL}};
    (void)sc_link_down(c, &down, out);
    return verdict;
}

// The actions of the last step still named these links by rank.
static void forget_parted(struct sc_core *c) {
    for (uint32_t r = 0; c->parting != 0 && r < c->config.world; r++) {
        if (c->parting >> r & 1u) {
            struct sc_peer *p = &c->peers[r];
            p->link = 0;
            p->able = p->joined = p->in_epoch = 0;
        }
    }
    c->parting = 0;
}

sc_status sc_core_step(struct sc_core *c, const struct sc_event *event, struct sc_actions *out) {
    SC_ASSERT(event->type < SC_EVENT_COUNT && c->state < SC_STATE_COUNT);
    SC_ASSERT(event->now_ns >= c->now_ns);
    c->now_ns = event->now_ns;
    out->count = 0;
    if (c->parting != 0)
        forget_parted(c);
    return cells[event->type][c->state](c, event, out);
}

uint64_t sc_core_deadline(const struct sc_core *c) {
    if (c->state == SC_STATE_CLOSED)
        return SC_CORE_NEVER_NS;
    uint64_t at = sc_greeting_deadline(c);
    uint64_t leaving = sc_leaving_deadline(c);
    uint64_t health = sc_health_deadline(c);
    at = leaving < at ? leaving : at;
    at = health < at ? health : at;
    if (is_coordinator(c) && c->state == SC_STATE_RENDEZVOUS && c->now_ns < c->retry_at_ns &&
        c->retry_at_ns < at)
        at = c->retry_at_ns;
    return at;
}

void sc_core_enter(struct sc_core *c, enum sc_state state, struct sc_actions *out) {
    // Which states may follow which; the picture in spark_comm.h, as data.
    static const uint8_t follows[STATES] = {
        [SC_STATE_IDLE] = 1u << SC_STATE_RENDEZVOUS | 1u << SC_STATE_FAILED,
        [SC_STATE_RENDEZVOUS] = 1u << SC_STATE_JOINING | 1u << SC_STATE_FAILED,
        [SC_STATE_JOINING] = 1u << SC_STATE_READY | 1u << SC_STATE_ABORTING,
        [SC_STATE_READY] = 1u << SC_STATE_ABORTING,
        [SC_STATE_ABORTING] = 1u << SC_STATE_RENDEZVOUS | 1u << SC_STATE_FAILED,
        [SC_STATE_FAILED] = 0,
        [SC_STATE_CLOSED] = 0,
    };
    SC_ASSERT((follows[c->state] >> state & 1u) || state == SC_STATE_CLOSED);
    bool told = state == SC_STATE_ABORTING || state >= SC_STATE_FAILED;
    PUSH(out, .type = SC_ACTION_NOTIFY, .kind = SC_NOTICE_STATE,
         .status = told ? c->cause.code : SC_OK, .rank = c->cause.suspect, .epoch = c->epoch,
         .a = c->state, .b = state);
    c->state = state;
}
