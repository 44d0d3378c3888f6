// SPDX-License-Identifier: AGPL-3.0-only
//
// What happened: the only input of the core. Pointers in an event are read during the step only.
#ifndef SC_CORE_EVENT_H
#define SC_CORE_EVENT_H

#include "core/frame.h"

// clang-format off
#define SC_EVENTS(X)                                                                               \
    X(START)          /* open has succeeded: begin to make links */                                \
    X(JOIN)           /* the application can serve; only after a start on hold */                  \
    X(TICK)           /* time has passed; links were read until empty just before */               \
    X(LINK_UP)        /* a connection exists: accepted or dialled */                               \
    X(LINK_DOWN)      /* a link has ended, or a dial has failed (link 0) */                        \
    X(FRAME)          /* a frame arrived on a link */                                              \
    X(COMM_ID)        /* result of GET_ID */                                                       \
    X(COMM_READY)     /* the epoch's communicator is formed and warm */                            \
    X(COMM_FAILED)    /* it could not be formed, or reported an asynchronous error */              \
    X(COMM_GONE)      /* its abort has returned */                                                 \
    X(OP_SUBMIT)      /* the application wants a collective */                                     \
    X(REPLAY)         /* … a captured list of them, as one */                                      \
    X(OP_STARTED)     /* its stream has reached it */                                              \
    X(OP_DONE)        /* its stream has passed it */                                               \
    X(OP_FAILED)      /* LAUNCH or a poll failed; INPROGRESS: polls give no answer for too long */ \
    X(CAPTURES)       /* how many captures hold the communicator has changed */                    \
    X(COMMAND)        /* rank 0: the application sends bytes to every member */                    \
    X(COMMAND_TAKEN)  /* member: … and has taken some that came */                                 \
    X(SYNC)           /* the application wants agreement up to a seq */                            \
    X(BARRIER)        /* the application has arrived once more */                                  \
    X(MARK)           /* the application has committed a step */                                   \
    X(RECONNECT)      /* the application gives the epoch up */                                     \
    X(CLOSE)          /* the application leaves */
// clang-format on

enum sc_event_type {
#define SC_EVENT_ENUM(name) SC_EVENT_##name,
    SC_EVENTS(SC_EVENT_ENUM)
#undef SC_EVENT_ENUM
        SC_EVENT_COUNT
};

const char *sc_event_name(enum sc_event_type type);

struct sc_event {
    enum sc_event_type type;
    uint64_t now_ns;
    uint64_t epoch; // the epoch it belongs to, where there is one
    union {
        struct {
            uint64_t link;
            uint32_t incoming; // 1: accepted, 0: dialled
            uint8_t random[SC_NONCE_BYTES];
        } link_up;
        struct {
            uint64_t link;
            sc_status status;
        } link_down;
        struct {
            uint64_t link;
            const struct sc_frame *frame;
            bool ended; // the link is known to have ended behind this frame
        } frame;
        struct {
            sc_status status;
            const uint8_t *id; // SC_COMM_ID_BYTES
        } comm_id;
        struct {
            uint64_t formed_ns;
        } comm_ready;
        struct {
            sc_status status;
        } comm_failed;
        struct {
            struct sc_op_desc desc;
            struct sc_op_place place;
        } submit;
        struct {
            const struct sc_op_desc *list;
            uint32_t count;
            uint64_t stream;
        } replay;
        struct {
            uint64_t number;
            sc_status status; // OP_FAILED
        } op;
        struct {
            uint32_t held;   // not released
            uint32_t graphs; // released, but their graphs live
        } captures;
        struct {
            uint32_t bytes;
            bool room; // every member's link can hold the frame now
        } command;
        uint64_t taken; // COMMAND_TAKEN: what they cost
        struct {
            uint64_t seq;
        } sync;
        uint64_t mark;
        uint32_t reason;
        bool final; // CLOSE: for good, or to come back
    } u;
};

#endif
