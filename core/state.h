// SPDX-License-Identifier: AGPL-3.0-only
//
// The states of a rank.
//
//                 join            OFFER           GO
//        IDLE ---------> RENDEZVOUS ---> JOINING ---> READY
//                            ^              |           |
//                            |              v           v      evidence, ABORT, reconnect
//                            +---- clean -- ABORTING <--+
//                                              |
//                                              v  stuck, or a terminal cause
//        close, anywhere ---> CLOSED        FAILED
#ifndef SC_CORE_STATE_H
#define SC_CORE_STATE_H

enum sc_state {
    SC_STATE_IDLE,       // open; links are made, but it cannot serve yet
    SC_STATE_RENDEZVOUS, // clean and waiting to be offered an epoch, or to offer one
    SC_STATE_JOINING,    // its communicator is forming
    SC_STATE_READY,      // the epoch lives; ops are accepted
    SC_STATE_ABORTING,   // the epoch is over; communicator and streams are being cleared
    SC_STATE_FAILED,     // terminal, with a cause
    SC_STATE_CLOSED,
    SC_STATE_COUNT,
};

const char *sc_state_name(enum sc_state state);

#endif
