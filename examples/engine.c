// SPDX-License-Identifier: AGPL-3.0-only
//
// One process of the engine, from its first call to its exit code. docs/GUIDE.md walks through it.
//
// A step computes the rows of the conversation that have no cache entries yet, and with them one
// token. It counts on a rank once sc_sync() said so and its mark was taken. Until then a rank changes
// nothing but buffers, and cache entries of the step's own rows: a step can be done again at any time.
//
// What ranks know of each other after a loss comes from the recovery record alone: marks tell who
// holds the longest conversation, `fresh` tells whose cache is gone. Rank 0 keeps in input.first how
// much of the conversation is cached on *every* rank; all that comes behind it is the next step. So a
// token that was cut short, a prompt, and the refill of a new process's cache are one and the same.
//
// Who asks the process to leave is heard between steps, and in waits for a command or an epoch;
// whatever else was interrupted is waited for again.
#include "engine_inside.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)
#define TELL_EVERY_NS (30 * SECOND)   // while an epoch forms, for people
#define COMMAND_LATE_NS (60 * SECOND) // without a command, and without the word that it is idle
#define BEHIND_NS (60 * SECOND)       // no step takes a rank so long: it hangs, alive as it is

enum reason { REASON_STEP_LEFT = 1 }; // for sc_reconnect()

enum command_kind {
    COMMAND_STEP = 1, // compute rows: those of a prompt, or the one of the last token
    COMMAND_IDLE,     // nothing comes for a while
    COMMAND_SHUTDOWN, // nothing comes any more
};

// From rank 0, one a step; sent without the tokens that are not there.
struct command {
    uint64_t step; // that it begins
    uint32_t kind;
    uint32_t first, rows;                 // as in struct model_input
    uint32_t tokens[MODEL_POSITIONS_MAX]; // of the rows
};

static bool must_leave(struct engine *e) {
    e->leaving = e->leaving || e->client->leaving(e->client->arg);
    return e->leaving;
}

// ---- opening -----------------------------------------------------------------------------------

static sc_status allocate(struct engine *e) {
    const uint64_t rows_bytes = MODEL_POSITIONS_MAX * MODEL_ROW_BYTES;
    sc_status status = gpu_stream_create(e->gpu, &e->stream);

    if (status == SC_OK)
        status = gpu_alloc(e->gpu, sizeof(model_weights), &e->args.weights);
    if (status == SC_OK)
        status = gpu_alloc(e->gpu, sizeof(model_cache), &e->args.cache);
    if (status == SC_OK)
        status = gpu_alloc(e->gpu, sizeof(struct model_input), &e->args.input);
    if (status == SC_OK)
        status = gpu_alloc(e->gpu, rows_bytes, &e->args.hidden);
    if (status == SC_OK)
        status = gpu_alloc(e->gpu, rows_bytes, &e->args.shared);
    if (status == SC_OK)
        status = gpu_alloc(e->gpu, sizeof(uint32_t), &e->args.token);
    if (status == SC_OK) // what is reduced all day lies where the communicator likes it best
        status = sc_mem_alloc(e->comm, rows_bytes, &e->args.partial);
    return status;
}

static sc_status load(struct engine *e) {
    model_weights weights;
    sc_status status = e->client->load(e->client->arg, e->rank, weights);

    if (status != SC_OK)
        return status;
    return gpu_write(e->gpu, e->stream, e->args.weights, weights, sizeof weights);
}

// Opened before the weights are loaded: what is wrong with address, key or configuration shows now
// and not in minutes, and peers see a rank that is loading, not one that is missing.
static sc_status start(struct engine *e, const struct sc_config *config) {
    struct sc_config own = *config;

    own.flags |= SC_OPEN_HOLD;
    if (own.timing.behind_ns == 0)
        own.timing.behind_ns = BEHIND_NS;
    sc_status status = sc_payload_capacity(MODEL_POSITIONS_MAX, MODEL_HIDDEN, &own.capacity_bytes);
    if (status == SC_OK)
        status = sc_open(&own, &e->comm);
    if (status == SC_OK)
        status = allocate(e);
    if (status == SC_OK)
        status = load(e);
    return status == SC_OK ? sc_join(e->comm) : status;
}

// ---- recovery ----------------------------------------------------------------------------------

static void forget_from(struct engine *e, uint32_t first) {
    if (first < e->input.first) {
        e->input.rows += e->input.first - first;
        e->input.first = first;
    }
}

// What the record takes from the cache. At once: `fresh` is told only once, and the epoch may end
// before anything comes of it.
static void read_record(struct engine *e, const struct sc_recovery *record) {
    for (uint32_t r = 0; r < record->world; r++) {
        if (record->ranks[r].fresh) // a new process: its cache is empty
            forget_from(e, 0);
        else if (record->ranks[r].mark < e->step) // it did not finish the last step
            forget_from(e, e->first_before);
    }
}

// All ranks read the same marks, and so name the same rank.
static uint32_t who_knows_most(const struct sc_recovery *record) {
    uint32_t best = 0;

    for (uint32_t r = 1; r < record->world; r++)
        if (record->ranks[r].mark > record->ranks[best].mark)
            best = r;
    return best;
}

static void adopt(struct engine *e, const struct model_input *told) {
    uint32_t known = e->input.first + e->input.rows, count = told->first + told->rows;
    uint32_t first = e->input.first < count ? e->input.first : count;

    e->input = *told;
    e->input.first = first; // what is cached is this rank's own to know
    e->input.rows = count - first;
    for (uint32_t position = 0; known < count && position < count; position++)
        e->client->on_token(e->client->arg, position, told->tokens[position]);
}

// From whoever knows most, all ranks learn the conversation; a rank 0 that was restarted, too.
static sc_status share_conversation(struct engine *e, const struct sc_recovery *record) {
    uint32_t root = who_knows_most(record);
    struct model_input told;
    sc_status status = gpu_write(e->gpu, e->stream, e->args.input, &e->input, sizeof e->input);

    if (status == SC_OK)
        status = sc_broadcast(e->comm, e->epoch, e->args.input, sizeof told, root, e->stream);
    if (status == SC_OK)
        status = engine_sync(e);
    if (status == SC_OK)
        status = gpu_read(e->gpu, e->stream, &told, e->args.input, sizeof told);
    if (status == SC_OK)
        status = sc_mark(e->comm, e->epoch, record->ranks[root].mark);
    if (status != SC_OK)
        return status;
    e->step = record->ranks[root].mark;
    adopt(e, &told);
    return SC_OK;
}

static sc_status enter_epoch(struct engine *e) {
    struct sc_recovery record = {.size = sizeof record};
    sc_status status;

    while ((status = sc_wait_ready(e->comm, TELL_EVERY_NS, &record)) != SC_OK) {
        if (sc_status_class(status) != SC_CLASS_WAIT)
            return status;
        if (must_leave(e))
            return SC_OK;
        e->client->say(e->client->arg, sc_last_error());
    }
    e->epoch = record.epoch;
    e->idle = false;
    read_record(e, &record);
    status = share_conversation(e, &record);
    if (status == SC_OK)
        e->client->on_epoch(e->client->arg, &record, &e->input);
    return status;
}

// A graph is of its epoch, and recovery waits until it is gone.
static sc_status drop_graph(struct engine *e) {
    sc_capture capture = e->capture;

    gpu_graph_destroy(e->gpu, e->graph);
    e->graph = NULL;
    e->capture = 0;
    return capture != 0 ? sc_capture_release(e->comm, capture) : SC_OK;
}

// ---- rank 0 ------------------------------------------------------------------------------------

static sc_status tell(struct engine *e, enum command_kind kind) {
    const struct model_input *input = &e->input;
    struct command command = {e->step + 1, kind, input->first, input->rows, {0}};
    size_t tokens_bytes = kind == COMMAND_STEP ? input->rows * sizeof command.tokens[0] : 0;
    uint32_t bytes = (uint32_t)(offsetof(struct command, tokens) + tokens_bytes);
    sc_status status;

    memcpy(command.tokens, input->tokens + input->first, tokens_bytes);
    do
        status = sc_command_send(e->comm, e->epoch, &command, bytes, SC_FOREVER);
    while (status == SC_INTERRUPTED);
    return status;
}

// Who closes ends the epoch, and what was said last in it is lost: so all meet before anybody does.
// A rank that hears of the end while it still waits here looks for an epoch once more, and finds
// that its peer has left, for good; or that it was not the end.
static sc_status meet_and_end(struct engine *e) {
    sc_status status;

    e->ending = true;
    do
        status = sc_barrier(e->comm, e->epoch, SC_FOREVER);
    while (status == SC_INTERRUPTED);
    e->over = status == SC_OK;
    return status;
}

static sc_status lead(struct engine *e) {
    struct model_input *input = &e->input;
    uint32_t count = input->first + input->rows, prompt_count = 0;
    sc_status status;

    switch (e->client->next(e->client->arg, count, input->tokens + count, &prompt_count)) {
    case ENGINE_WAIT:
        status = tell(e, COMMAND_IDLE);
        return status == SC_OK ? e->client->wait(e->client->arg) : status;
    case ENGINE_OVER:
        status = tell(e, COMMAND_SHUTDOWN);
        return status == SC_OK ? meet_and_end(e) : status;
    case ENGINE_PROMPT: input->rows += prompt_count; break;
    case ENGINE_GENERATE: break;
    }
    status = tell(e, COMMAND_STEP);
    return status == SC_OK ? engine_step(e) : status;
}

// ---- rank 1 ------------------------------------------------------------------------------------

static sc_status obey_step(struct engine *e, const struct command *command) {
    bool fits = command->first < MODEL_POSITIONS_MAX &&
                command->rows < MODEL_POSITIONS_MAX - command->first;

    if (command->step != e->step + 1 || !fits) {
        char text[128];

        snprintf(text, sizeof text,
                 "rank 0 begins step %" PRIu64 " of %" PRIu32 " rows, and step %" PRIu64 " is next",
                 command->step, command->rows, e->step + 1);
        e->client->say(e->client->arg, text);
        return SC_INVALID;
    }
    e->input.first = command->first;
    e->input.rows = command->rows;
    memcpy(e->input.tokens + command->first, command->tokens,
           command->rows * sizeof command->tokens[0]);
    return engine_step(e);
}

static sc_status follow(struct engine *e) {
    struct command command;
    uint32_t bytes;
    sc_status status = sc_command_recv(e->comm, e->epoch, &command, sizeof command, &bytes,
                                       e->idle ? SC_FOREVER : COMMAND_LATE_NS);

    if (status == SC_TIMEOUT) // it lives, or the epoch would be lost
        e->client->say(e->client->arg, "rank 0 lives, and neither commands nor says that it idles");
    if (status == SC_TIMEOUT || status == SC_INTERRUPTED)
        return SC_OK;
    if (status != SC_OK)
        return status;
    e->idle = command.kind == COMMAND_IDLE;
    switch (command.kind) {
    case COMMAND_STEP: return obey_step(e, &command);
    case COMMAND_SHUTDOWN: return meet_and_end(e);
    default: return SC_OK;
    }
}

// ---- a life ------------------------------------------------------------------------------------

static sc_status live_through_epoch(struct engine *e) {
    sc_status status = enter_epoch(e);

    while (status == SC_OK && !e->over && !must_leave(e))
        status = e->rank == 0 ? lead(e) : follow(e);
    if (status != SC_OK) // whatever made this rank leave its step, no other may wait in it
        status = failure_of(status, sc_reconnect(e->comm, e->epoch, REASON_STEP_LEFT));
    return failure_of(status, drop_graph(e));
}

// What ends an epoch and nothing else, whoever is to blame: the library forms the next.
static bool is_recoverable(sc_status status) {
    enum sc_status_class class = sc_status_class(status);

    return class == SC_CLASS_EPOCH || class == SC_CLASS_PEER || class == SC_CLASS_LOCAL;
}

static enum engine_exit exit_of(const struct engine *e, sc_status status) {
    if (e->over || (e->ending && status == SC_PEER_LEFT))
        return ENGINE_DONE;
    if (status == SC_OK)
        return ENGINE_LEFT;
    switch (status) {
    case SC_FENCED: return ENGINE_FENCED;
    case SC_PEER_LEFT: return ENGINE_DESERTED;
    case SC_CONFIG:
    case SC_KEY:
    case SC_UNREACHABLE: return ENGINE_REFUSED;
    default: break;
    }
    return sc_status_class(status) == SC_CLASS_CALLER ? ENGINE_REFUSED : ENGINE_BROKEN;
}

// Buffers go after the communicator that may still touch them; if it never lets go, with the process.
static void close_all(struct engine *e, enum sc_close_how how) {
    sc_status status;

    do
        status = e->comm != 0 ? sc_close(e->comm, how, SC_FOREVER) : SC_OK;
    while (status == SC_INTERRUPTED);
    if (status != SC_OK)
        return;
    gpu_stream_destroy(e->gpu, e->stream);
    gpu_free(e->gpu, e->args.weights);
    gpu_free(e->gpu, e->args.cache);
    gpu_free(e->gpu, e->args.input);
    gpu_free(e->gpu, e->args.hidden);
    gpu_free(e->gpu, e->args.shared);
    gpu_free(e->gpu, e->args.token);
}

enum engine_exit engine_run(struct gpu *gpu, const struct sc_config *config,
                            const struct engine_client *client, bool captured) {
    struct engine e = {.gpu = gpu, .client = client, .captured = captured, .rank = config->rank};
    sc_status status = start(&e, config);

    while (status == SC_OK && !e.over && !e.leaving) {
        status = live_through_epoch(&e);
        if (is_recoverable(status))
            status = SC_OK;
    }
    enum engine_exit code = exit_of(&e, status);
    if (code != ENGINE_DONE && code != ENGINE_LEFT)
        client->say(client->arg, sc_last_error());
    // FINAL would end the peer too: only who is done says it.
    close_all(&e, code == ENGINE_DONE ? SC_CLOSE_FINAL : SC_CLOSE_RETURNING);
    return code;
}
