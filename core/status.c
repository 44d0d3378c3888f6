// SPDX-License-Identifier: AGPL-3.0-only
//
// Name, class and sentence of every answer: what it means and what to do.
#include "core/status.h"

static const struct {
    const char *name;
    const char *sentence;
    enum sc_status_class class;
} table[SC_STATUS_COUNT] = {
#define ROW(code, class_, text) [SC_##code] = {#code, text, SC_CLASS_##class_}
    // clang-format off
    ROW(OK,             DONE,     "done"),
    ROW(INPROGRESS,     WAIT,     "not finished yet; ask again"),
    ROW(TIMEOUT,        WAIT,     "the caller's time ran out; the library goes on trying"),
    ROW(JOIN_TIMEOUT,   WAIT,     "ranks are still missing after join_ns; the library goes on trying"),
    ROW(BUSY,           WAIT,     "too many are in flight; wait for one to complete"),
    ROW(INTERRUPTED,    WAIT,     "the wait was interrupted; call again to go on waiting"),
    ROW(INVALID,        CALLER,   "an argument is out of range; the call had no effect"),
    ROW(ALIGN,          CALLER,   "an address is not aligned to its element size"),
    ROW(CAPACITY,       CALLER,   "the payload is larger than the capacity given at open"),
    ROW(TOO_LARGE,      CALLER,   "a size does not fit the range of a later stage"),
    ROW(CLOSED,         CALLER,   "this handle is closed"),
    ROW(STATE,          CALLER,   "not legal in the present state"),
    ROW(CAPTURE,        CALLER,   "the stream is capturing and this operation cannot be captured"),
    ROW(FORKED,         CALLER,   "the handle belongs to the parent of this process; open one here"),
    ROW(UNAVAILABLE,    CALLER,   "this build or machine lacks what was asked for"),
    ROW(EPOCH_LOST,     EPOCH,    "the epoch named is not the live one; wait for the next epoch"),
    ROW(PEER_DEAD,      PEER,     "the peer's control link ended; its process died or was cut off"),
    ROW(PEER_SILENT,    PEER,     "no heartbeat from the peer within the silence limit"),
    ROW(PEER_BEHIND,    PEER,     "the peer is alive but has not started this operation"),
    ROW(PEER_ABORTED,   PEER,     "the peer gave the epoch up"),
    ROW(LINK_LOST,      PEER,     "the peer's control link was replaced by a new one"),
    ROW(MISMATCH,       PEER,     "ranks submitted different operations under the same number"),
    ROW(FABRIC,         PEER,     "every rank started the operation and none finishes it"),
    ROW(PROTOCOL,       PEER,     "a frame broke the protocol; its link was dropped"),
    ROW(STALE,          PEER,     "an old hello; the rank has said a newer one"),
    ROW(DUP_RANK,       PEER,     "another live process already holds this rank; retried"),
    ROW(RECONNECT,      PEER,     "the application asked for a new epoch"),
    ROW(LINK_EOF,       PEER,     "the link has ended"),
    ROW(REFUSED,        PEER,     "nobody accepts connections at this address"),
    ROW(UNREACHABLE,    PEER,     "the address or name cannot be reached or resolved"),
    ROW(KEY,            PEER,     "the pre-shared key was not proved; give all ranks the same key"),
    ROW(INIT_TIMEOUT,   LOCAL,    "the communicator did not form within the init deadline"),
    ROW(ASYNC_ERROR,    LOCAL,    "the communicator reported an asynchronous error"),
    ROW(SUBMIT_FAILED,  LOCAL,    "the device refused part of an operation; nothing was added"),
    ROW(COMM_FAILED,    LOCAL,    "the communicator could not be created"),
    ROW(DEVICE_ERROR,   LOCAL,    "a device call failed"),
    ROW(NO_MEMORY,      LOCAL,    "memory or descriptors could not be allocated"),
    ROW(BIND,           LOCAL,    "the coordinator's address cannot be bound: taken, or not ours"),
    ROW(ABORT_STUCK,    TERMINAL, "the communicator's abort never returned; restart the process"),
    ROW(CONTEXT_LOST,   TERMINAL, "the device context is corrupt; restart the process"),
    ROW(FENCED,         TERMINAL, "another process took this rank's place while it was away"),
    ROW(CONFIG,         TERMINAL, "ranks were configured differently; make them agree"),
    ROW(PEER_LEFT,      TERMINAL, "a peer left for good"),
    ROW(SIM_KILLED,     TERMINAL, "this simulated process is dead; let its thread return"),
// clang-format on
#undef ROW
};

static bool known(sc_status status) {
    return (unsigned)status < SC_STATUS_COUNT;
}

const char *sc_status_name(sc_status status) {
    return known(status) ? table[status].name : "UNKNOWN";
}

const char *sc_status_sentence(sc_status status) {
    return known(status) ? table[status].sentence : "not a status of this library";
}

enum sc_status_class sc_status_class(sc_status status) {
    return known(status) ? table[status].class : SC_CLASS_TERMINAL;
}
