// SPDX-License-Identifier: AGPL-3.0-only
//
// What is to be done: the only output of the core, performed by the pump in order.
#ifndef SC_CORE_ACTION_H
#define SC_CORE_ACTION_H

#include "core/assert.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

// clang-format off
#define SC_ACTIONS(X)                                                                              \
    X(LISTEN)         /* rank 0 of a world that has members, once */                               \
    X(DIAL)           /* a: attempt, which picks among the name's addresses */                     \
    X(DROP)           /* link, or mask of ranks; what was sent before is flushed first */          \
    X(SEND)           /* kind, to link or to mask of ranks; sc_core_compose fills the frame */     \
    X(GET_ID)         /* a fresh communicator id; answered by COMM_ID */                           \
    X(COMM_CREATE)    /* epoch; the id is sc_core_comm_id */                                       \
    X(COMM_ABORT)     /* epoch; answered by COMM_GONE */                                           \
    X(COMM_ABANDON)   /* epoch; an abort that a dead or frozen peer holds up is given up */        \
    X(FENCE)          /* epoch, or 0 */                                                            \
    X(REGISTER_ALL)   /* epoch: every remembered buffer, with its communicator */                  \
    X(LAUNCH)         /* epoch, a: op number, b: seq; OP_FAILED answers if it cannot be done */    \
    X(OP_COMPLETE)    /* epoch, a: op number, b: last seq; its result counts */                    \
    X(LOST)           /* epoch, a..b: op numbers whose results never count */                      \
    X(NOTIFY)         /* kind: enum sc_notice, for the application and for traces */
// clang-format on

enum sc_action_type {
#define SC_ACTION_ENUM(name) SC_ACTION_##name,
    SC_ACTIONS(SC_ACTION_ENUM)
#undef SC_ACTION_ENUM
        SC_ACTION_COUNT
};

const char *sc_action_name(enum sc_action_type type);

enum sc_notice {
    SC_NOTICE_STATE,   // a: from, b: to; status, rank: the cause's when an epoch is left and at the
                       // end
    SC_NOTICE_REFUSED, // rank, status: a hello was refused here, or ours was there; a, b: the
                       // coordinator's value and the member's; mask: CONFIG's field
    SC_NOTICE_MISSING, // mask: ranks that are not here after join_ns
    SC_NOTICE_AGREED,  // a: seq up to which all ranks' digests agree
    SC_NOTICE_BARRIER, // a: how many barriers of the epoch every rank has arrived at
    SC_NOTICE_COMMAND_ROOM, // a COMMAND was answered BUSY; another try is worth it
    SC_NOTICE_CAPTURES,     // a: captures that the application must release before recovery goes on
    SC_NOTICE_GREETED,      // rank: its link is up
    SC_NOTICE_BYE,          // rank: it said that it leaves; status: why
    SC_NOTICE_BREACH,       // rank: it broke the protocol, and its link was dropped
    SC_NOTICE_CAUSE,        // status, rank: the cause by which the last epoch ended, known only now
};

struct sc_action {
    uint32_t type;
    uint32_t kind;
    uint32_t rank;
    uint32_t status; // sc_status
    uint64_t epoch;
    uint64_t link;
    uint64_t mask;
    uint64_t a;
    uint64_t b;
};
_Static_assert(sizeof(struct sc_action) <= 64, "an action fits one cache line");

#define SC_ACTIONS_MAX 16u

// Whether the core's view has a whole cause that belongs to the notice.
static inline bool sc_notice_has_cause(const struct sc_action *notice) {
    return (notice->kind == SC_NOTICE_STATE && notice->status != SC_OK) ||
           notice->kind == SC_NOTICE_CAUSE;
}

struct sc_actions {
    uint32_t count;
    struct sc_action list[SC_ACTIONS_MAX];
};

static inline uint32_t sc_actions_room(const struct sc_actions *out) {
    return SC_ACTIONS_MAX - out->count;
}

static inline void sc_actions_push(struct sc_actions *out, struct sc_action action) {
    SC_ASSERT(out->count < SC_ACTIONS_MAX);
    out->list[out->count++] = action;
}

#endif
