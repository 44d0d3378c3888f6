// SPDX-License-Identifier: AGPL-3.0-only
//
// A step: what is enqueued for it, by hand or by graph, and when it counts.
#include "engine_inside.h"

static sc_status launch(struct engine *e, enum gpu_kernel kernel, uint32_t layer) {
    e->args.layer = layer;
    return gpu_launch(e->gpu, e->stream, kernel, &e->args);
}

// The shared expert runs on the engine's stream while the library reduces on its own.
static sc_status reduce_beside_shared_expert(struct engine *e, uint32_t layer, uint64_t bytes) {
    sc_ticket ticket;
    sc_status status =
        sc_all_reduce_start(e->comm, e->epoch, e->args.partial, bytes, SC_BF16, e->stream, &ticket);

    if (status != SC_OK)
        return status;
    status = launch(e, GPU_SHARED_EXPERT, layer);
    return failure_of(status, sc_all_reduce_join(e->comm, e->epoch, ticket, e->stream));
}

static sc_status enqueue_layer(struct engine *e, uint32_t layer, uint64_t bytes) {
    sc_status status = launch(e, GPU_EXPERTS, layer);

    if (status == SC_OK && model_has_shared_expert(layer))
        status = reduce_beside_shared_expert(e, layer, bytes);
    else if (status == SC_OK)
        status = sc_all_reduce(e->comm, e->epoch, e->args.partial, bytes, SC_BF16, e->stream);
    return status == SC_OK ? launch(e, GPU_UPDATE, layer) : status;
}

// No submit waits: a step has far fewer ops than the ledger holds, and each step ends with a sync.
static sc_status enqueue_step(struct engine *e, uint32_t rows) {
    sc_status status = launch(e, GPU_EMBED, 0);

    for (uint32_t layer = 0; layer < MODEL_LAYERS && status == SC_OK; layer++)
        status = enqueue_layer(e, layer, rows * MODEL_ROW_BYTES);
    return status == SC_OK ? launch(e, GPU_HEAD, 0) : status;
}

// Once an epoch. Whatever happens inside, both captures are ended, the library's first.
static sc_status capture_decode(struct engine *e) {
    sc_status status = gpu_capture_begin(e->gpu, e->stream);

    if (status != SC_OK)
        return status;
    status = sc_capture_begin(e->comm, e->epoch, e->stream, &e->capture);
    if (status == SC_OK) {
        status = enqueue_step(e, 1);
        status = failure_of(status, sc_capture_end(e->comm, e->capture));
    }
    return failure_of(status, gpu_capture_end(e->gpu, e->stream, e->capture, &e->graph));
}

static sc_status replay_decode(struct engine *e) {
    sc_status status = e->graph == NULL ? capture_decode(e) : SC_OK;

    if (status == SC_OK)
        status = sc_replay_begin(e->comm, e->epoch, e->capture, e->stream);
    if (status != SC_OK)
        return status;
    status = gpu_graph_launch(e->gpu, e->graph, e->stream);
    return failure_of(status, sc_replay_end(e->comm)); // begun, and so ended
}

sc_status engine_sync(struct engine *e) {
    sc_status status;

    do
        status = sc_sync(e->comm, e->epoch, e->stream, SC_SYNC_AGREED, SC_FOREVER);
    while (status == SC_INTERRUPTED);
    return status;
}

// The mark first: if the epoch ends before it is taken, this rank has not done the step.
static sc_status commit_step(struct engine *e, uint32_t token) {
    struct model_input *input = &e->input;
    sc_status status = sc_mark(e->comm, e->epoch, e->step + 1);

    if (status != SC_OK)
        return status;
    e->step++;
    e->first_before = input->first;
    input->first += input->rows;
    input->rows = 1;
    input->tokens[input->first] = token;
    e->client->on_token(e->client->arg, input->first, token);
    return SC_OK;
}

sc_status engine_step(struct engine *e) {
    uint32_t token = 0;
    sc_status status = gpu_write(e->gpu, e->stream, e->args.input, &e->input, sizeof e->input);

    if (status == SC_OK && e->captured && e->input.rows == 1)
        status = replay_decode(e);
    else if (status == SC_OK)
        status = enqueue_step(e, e->input.rows);
    if (status == SC_OK)
        status = engine_sync(e); // until here the token may be anything
    if (status == SC_OK)
        status = gpu_read(e->gpu, e->stream, &token, e->args.token, sizeof token);
    return status == SC_OK ? commit_step(e, token) : status;
}
