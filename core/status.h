// SPDX-License-Identifier: AGPL-3.0-only
//
// Every answer the library gives: one code, its class, one sentence that says what to do.
//
// The class tells a caller how to react without knowing each code:
//   DONE      it happened
//   WAIT      not yet; nothing is wrong
//   CALLER    the call was wrong and had no effect; mend the call
//   EPOCH     the epoch is over; wait for the next one and redo the step
//   PEER      a verdict about a peer; recovery follows by itself
//   LOCAL     something on this side failed; an attempt was given up, another follows
//   TERMINAL  this rank cannot go on; close it and start again
#ifndef SC_CORE_STATUS_H
#define SC_CORE_STATUS_H

#include <stdbool.h>

#define SC_MUST_USE __attribute__((warn_unused_result))

// clang-format off
#define SC_STATUS_TABLE(X)                                                                         \
    X(OK,             DONE,     "done")                                                            \
    X(INPROGRESS,     WAIT,     "not finished yet; ask again")                                     \
    X(TIMEOUT,        WAIT,     "the caller's time ran out; the library goes on trying")           \
    X(BUSY,           WAIT,     "too many operations are in flight; wait for one to complete")     \
    X(INVALID,        CALLER,   "an argument is out of range; the call had no effect")             \
    X(ALIGN,          CALLER,   "an address is not aligned to its element size")                   \
    X(CAPACITY,       CALLER,   "the payload is larger than the capacity given at open")           \
    X(TOO_LARGE,      CALLER,   "a size does not fit the range of a later stage")                  \
    X(CLOSED,         CALLER,   "this handle is closed")                                           \
    X(STATE,          CALLER,   "not legal in the present state")                                  \
    X(CAPTURE,        CALLER,   "the stream is capturing and this operation cannot be captured")   \
    X(EPOCH_LOST,     EPOCH,    "the epoch named is not the live one; wait for the next epoch")    \
    X(PEER_DEAD,      PEER,     "the peer's control link ended; its process died or was cut off")  \
    X(PEER_SILENT,    PEER,     "no heartbeat from the peer within the silence limit")             \
    X(PEER_BEHIND,    PEER,     "the peer is alive but has not started this operation")            \
    X(PEER_ABORTED,   PEER,     "the peer gave the epoch up")                                      \
    X(LINK_LOST,      PEER,     "the peer's control link was replaced by a new one")               \
    X(MISMATCH,       PEER,     "ranks submitted different operations under the same number")      \
    X(FABRIC,         PEER,     "every rank started the operation and none finishes it")           \
    X(PROTOCOL,       PEER,     "a frame broke the protocol; its link was dropped")                \
    X(STALE,          PEER,     "an old hello; the rank has said a newer one")                     \
    X(DUP_RANK,       PEER,     "another live process already holds this rank; retried")           \
    X(RECONNECT,      PEER,     "the application asked for a new epoch")                           \
    X(LINK_EOF,       PEER,     "the link has ended")                                              \
    X(REFUSED,        PEER,     "nobody accepts connections at this address")                      \
    X(UNREACHABLE,    PEER,     "the address or name cannot be reached or resolved")               \
    X(INIT_TIMEOUT,   LOCAL,    "the communicator did not form within the init deadline")          \
    X(ASYNC_ERROR,    LOCAL,    "the communicator reported an asynchronous error")                 \
    X(SUBMIT_FAILED,  LOCAL,    "the device refused part of an operation; nothing was added")      \
    X(COMM_FAILED,    LOCAL,    "the communicator could not be created")                           \
    X(DEVICE_ERROR,   LOCAL,    "a device call failed")                                            \
    X(NO_MEMORY,      LOCAL,    "memory could not be allocated")                                   \
    X(BIND,           LOCAL,    "the coordinator's address cannot be bound: taken, or not ours")   \
    X(ABORT_STUCK,    TERMINAL, "the communicator's abort never returned; restart the process")    \
    X(CONTEXT_LOST,   TERMINAL, "the device context is corrupt; restart the process")              \
    X(FENCED,         TERMINAL, "another process took this rank's place while it was away")        \
    X(CONFIG,         TERMINAL, "ranks were configured differently; make them agree")              \
    X(PEER_LEFT,      TERMINAL, "a peer left for good")
// clang-format on

enum sc_status_class {
    SC_CLASS_DONE,
    SC_CLASS_WAIT,
    SC_CLASS_CALLER,
    SC_CLASS_EPOCH,
    SC_CLASS_PEER,
    SC_CLASS_LOCAL,
    SC_CLASS_TERMINAL,
};

typedef enum sc_status {
#define SC_STATUS_ENUM(name, class, sentence) SC_##name,
    SC_STATUS_TABLE(SC_STATUS_ENUM)
#undef SC_STATUS_ENUM
        SC_STATUS_COUNT
} sc_status;

// All three answer for any value; an unknown one is named "UNKNOWN" and is TERMINAL.
const char *sc_status_name(sc_status status);
const char *sc_status_sentence(sc_status status);
enum sc_status_class sc_status_class(sc_status status);

static inline bool sc_status_is_terminal(sc_status status) {
    return sc_status_class(status) == SC_CLASS_TERMINAL;
}

#endif
