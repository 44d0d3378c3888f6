// SPDX-License-Identifier: AGPL-3.0-only
//
// A small inference engine on two ranks. Rank 0 leads: it takes requests and says what is computed
// next; rank 1 follows. Either may die at any moment and be started again: the other keeps its
// process, its weights and what is known of the conversation, and no token is lost or wrong.
#ifndef ENGINE_H
#define ENGINE_H

#include "gpu.h"
#include "model.h"

#include <stdbool.h>

// What a process ends with, for whoever supervises it.
enum engine_exit {
    ENGINE_DONE = 0,      // every token came; do not start it again
    ENGINE_LEFT = 10,     // it was asked to leave; start it again when that is wanted
    ENGINE_REFUSED = 11,  // something here is wrong: configuration or engine must be mended
    ENGINE_BROKEN = 12,   // device or communicator is beyond use here; start it again
    ENGINE_FENCED = 13,   // another process has this rank's place; do not start it again
    ENGINE_DESERTED = 14, // the peer left for good
};

// What rank 0 is to do next.
enum engine_next {
    ENGINE_GENERATE, // one more token of the answer
    ENGINE_PROMPT,   // a prompt has come; compute it, and the first token of the answer
    ENGINE_WAIT,     // there is no request now
    ENGINE_OVER,     // there will be none
};

// Who uses the engine. All calls come from the thread of engine_run(), `arg` first.
struct engine_client {
    void *arg;
    // Brings this rank's weights, from wherever they are; it may take minutes. SC_OK or TERMINAL.
    sc_status (*load)(void *arg, uint32_t rank, model_weights weights);
    // Rank 0 only. What follows the first `count` tokens of the conversation. ENGINE_PROMPT writes
    // *prompt_count tokens, so that with them there are fewer than MODEL_POSITIONS_MAX.
    enum engine_next (*next)(void *arg, uint32_t count, uint32_t *prompt, uint32_t *prompt_count);
    // Rank 0 only, after ENGINE_WAIT: returns when there is a request. SC_OK or TERMINAL.
    sc_status (*wait)(void *arg);
    // Whether this process was asked to leave, to be started again later. A signal handler would set
    // what this reads, and call sc_interrupt().
    bool (*leaving)(void *arg);
    // An epoch has begun, and the conversation goes on: the next step computes `input`, as far as
    // this rank knows.
    void (*on_epoch)(void *arg, const struct sc_recovery *record, const struct model_input *input);
    // The token at this place counts. Told again, and alike, by a rank that learns it anew.
    void (*on_token)(void *arg, uint32_t position, uint32_t token);
    // For people.
    void (*say)(void *arg, const char *text);
};

// Runs this process's rank until the conversation is over or it cannot go on. `config` tells rank,
// world (2), addresses, key and timing; the engine sets the rest. `captured`: decode by graph.
enum engine_exit engine_run(struct gpu *gpu, const struct sc_config *config,
                            const struct engine_client *client, bool captured);

#endif
