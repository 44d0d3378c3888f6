// SPDX-License-Identifier: AGPL-3.0-only
//
// What a rank's process and its parent tell each other over their socket, one packet each: the parent
// relays what ranks gather, hears their verdicts, and strikes when a mark says so.
#ifndef SC_CONFORMANCE_RANKS_H
#define SC_CONFORMANCE_RANKS_H

#include "tests/conformance/world.h"

enum conf_word {
    CONF_SILENT, // no word is waiting for its answer
    CONF_GATHER,
    CONF_VERDICT,
    CONF_MARKED,
};

struct conf_message {
    uint32_t word;  // enum conf_word
    uint64_t value; // CONF_VERDICT: whether it is well; CONF_MARKED: the mark
    uint64_t words[CONF_WORDS];
    char why[CONF_WHY_BYTES];
};

struct conf_answer {
    uint32_t status; // sc_status
    uint64_t all[CONF_RANKS_MAX][CONF_WORDS];
};

// A rank's process is this program with --live, which says: rank, life, its end of the socket, and the
// port of rank 0; then the names of the tests.
#define CONF_LIVE_FORMAT "%u:%u:%u:%u"

#endif
