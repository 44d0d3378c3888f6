// SPDX-License-Identifier: AGPL-3.0-only
//
// Kernels here are functions on the host, called when the simulated stream comes to them. A launch is
// kept for as long as the GPU is open, for a graph may run it any number of times; launches that are
// alike are kept once, so that their number does not grow.
#include "gpu_sim.h"

#include "model.h"

#include <stdlib.h>

struct launch {
    struct launch *next;
    struct gpu *gpu;
    enum gpu_kernel kernel;
    struct gpu_args args;
};

struct gpu {
    struct sc_sim_rank *rank;
    struct launch *launches;
};

struct gpu_graph {
    sc_capture capture;
};

struct gpu *gpu_sim_open(struct sc_sim_rank *rank) {
    struct gpu *gpu = calloc(1, sizeof *gpu);

    if (gpu != NULL)
        gpu->rank = rank;
    return gpu;
}

void gpu_sim_close(struct gpu *gpu) {
    while (gpu->launches != NULL) {
        struct launch *launch = gpu->launches;

        gpu->launches = launch->next;
        free(launch);
    }
    free(gpu);
}

// ---- memory and streams ------------------------------------------------------------------------

// A simulated device that fails its own user has lost its context, unless its process is dead.
static sc_status terminal(sc_status status) {
    return status == SC_OK || status == SC_SIM_KILLED ? status : SC_CONTEXT_LOST;
}

sc_status gpu_alloc(struct gpu *gpu, uint64_t bytes, void **buffer) {
    return sc_sim_rank_alloc(gpu->rank, bytes, buffer);
}

void gpu_free(struct gpu *gpu, void *buffer) {
    if (buffer != NULL && sc_sim_rank_free(gpu->rank, buffer) != SC_OK)
        return; // the process is dead, and so is its memory
}

sc_status gpu_stream_create(struct gpu *gpu, void **stream) {
    return terminal(sc_sim_rank_stream_create(gpu->rank, stream));
}

void gpu_stream_destroy(struct gpu *gpu, void *stream) {
    if (stream != NULL && sc_sim_rank_stream_destroy(gpu->rank, stream) != SC_OK)
        return;
}

sc_status gpu_write(struct gpu *gpu, void *stream, void *to, const void *from, uint64_t bytes) {
    sc_status status = terminal(sc_sim_rank_stream_wait(gpu->rank, stream, SC_FOREVER));
    void *memory = sc_sim_rank_memory(gpu->rank, to, bytes);

    if (status != SC_OK || memory == NULL)
        return status != SC_OK ? status : SC_CONTEXT_LOST;
    memcpy(memory, from, bytes);
    return SC_OK;
}

sc_status gpu_read(struct gpu *gpu, void *stream, void *to, const void *from, uint64_t bytes) {
    sc_status status = terminal(sc_sim_rank_stream_wait(gpu->rank, stream, SC_FOREVER));
    const void *memory = sc_sim_rank_memory(gpu->rank, from, bytes);

    if (status != SC_OK || memory == NULL)
        return status != SC_OK ? status : SC_CONTEXT_LOST;
    memcpy(to, memory, bytes);
    return SC_OK;
}

// ---- kernels -----------------------------------------------------------------------------------

// What a kernel's arguments point at.
struct view {
    const struct model_input *input;
    const uint8_t (*weights)[MODEL_HIDDEN];
    uint8_t (*cache)[MODEL_POSITIONS_MAX][MODEL_HIDDEN];
    uint16_t (*hidden)[MODEL_HIDDEN];
    uint16_t (*partial)[MODEL_HIDDEN];
    uint16_t (*shared)[MODEL_HIDDEN];
    uint32_t *token;
};

static bool look(struct gpu *gpu, const struct gpu_args *args, struct view *view) {
    const uint64_t rows = MODEL_POSITIONS_MAX * MODEL_ROW_BYTES;

    view->input = sc_sim_rank_memory(gpu->rank, args->input, sizeof *view->input);
    view->weights = sc_sim_rank_memory(gpu->rank, args->weights, sizeof(model_weights));
    view->cache = sc_sim_rank_memory(gpu->rank, args->cache, sizeof(model_cache));
    view->hidden = sc_sim_rank_memory(gpu->rank, args->hidden, rows);
    view->partial = sc_sim_rank_memory(gpu->rank, args->partial, rows);
    view->shared = sc_sim_rank_memory(gpu->rank, args->shared, rows);
    view->token = sc_sim_rank_memory(gpu->rank, args->token, sizeof *view->token);
    return view->input != NULL && view->weights != NULL && view->cache != NULL &&
           view->hidden != NULL && view->partial != NULL && view->shared != NULL &&
           view->token != NULL;
}

static void embed(const struct view *view) {
    for (uint32_t row = 0; row < view->input->rows; row++) {
        uint32_t position = view->input->first + row;

        for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
            view->hidden[row][i] =
                model_to_bf16(model_embed(view->input->tokens[position], position, i));
    }
}

static void experts(const struct view *view, uint32_t layer) {
    uint8_t(*cache)[MODEL_HIDDEN] = view->cache[layer];
    const uint8_t *weights = view->weights[layer];

    for (uint32_t row = 0; row < view->input->rows; row++) {
        uint32_t position = view->input->first + row;

        for (uint32_t i = 0; i < MODEL_HIDDEN; i++) {
            uint32_t attention = 0;
            uint32_t neighbour = model_from_bf16(view->hidden[row][model_neighbour(i)]);

            cache[position][i] =
                model_cache_entry(model_from_bf16(view->hidden[row][i]), weights[i]);
            for (uint32_t p = 0; p <= position; p++)
                attention += model_attend(cache[p][i], position - p);
            view->partial[row][i] =
                model_to_bf16(model_expert(attention % MODEL_MODULUS, neighbour, weights[i]));
        }
    }
}

static void shared_expert(const struct view *view) {
    for (uint32_t row = 0; row < view->input->rows; row++)
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
            view->shared[row][i] = model_to_bf16(
                model_shared_expert(model_from_bf16(view->hidden[row][i]),
                                    model_from_bf16(view->hidden[row][model_neighbour(i)])));
}

static void update(const struct view *view, uint32_t layer) {
    for (uint32_t row = 0; row < view->input->rows; row++) {
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++) {
            uint32_t shared =
                model_has_shared_expert(layer) ? model_from_bf16(view->shared[row][i]) : 0;

            view->hidden[row][i] =
                model_to_bf16(model_update(model_from_bf16(view->hidden[row][i]),
                                           model_from_bf16(view->partial[row][i]), shared));
        }
    }
}

static void head(const struct view *view) {
    uint32_t token = 0;

    for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
        token = model_head(token, model_from_bf16(view->hidden[view->input->rows - 1][i]));
    *view->token = token;
}

static void run_kernel(void *arg) {
    const struct launch *launch = arg;
    struct view view;

    if (!look(launch->gpu, &launch->args, &view))
        return;
    switch (launch->kernel) {
    case GPU_EMBED: embed(&view); break;
    case GPU_EXPERTS: experts(&view, launch->args.layer); break;
    case GPU_SHARED_EXPERT: shared_expert(&view); break;
    case GPU_UPDATE: update(&view, launch->args.layer); break;
    case GPU_HEAD: head(&view); break;
    case GPU_KERNELS: break;
    }
}

static bool is_alike(const struct launch *launch, enum gpu_kernel kernel,
                     const struct gpu_args *args) {
    const struct gpu_args *own = &launch->args;

    return launch->kernel == kernel && own->layer == args->layer && own->input == args->input &&
           own->weights == args->weights && own->cache == args->cache &&
           own->hidden == args->hidden && own->partial == args->partial &&
           own->shared == args->shared && own->token == args->token;
}

sc_status gpu_launch(struct gpu *gpu, void *stream, enum gpu_kernel kernel,
                     const struct gpu_args *args) {
    static const uint64_t duration_ns[GPU_KERNELS] = {
        [GPU_EMBED] = 5000,  [GPU_EXPERTS] = 30000, [GPU_SHARED_EXPERT] = 15000,
        [GPU_UPDATE] = 5000, [GPU_HEAD] = 20000,
    };
    struct launch *launch = gpu->launches;

    while (launch != NULL && !is_alike(launch, kernel, args))
        launch = launch->next;
    if (launch == NULL) {
        launch = malloc(sizeof *launch);
        if (launch == NULL)
            return SC_CONTEXT_LOST;
        *launch = (struct launch){gpu->launches, gpu, kernel, *args};
        gpu->launches = launch;
    }
    return terminal(sc_sim_rank_launch(gpu->rank, stream, duration_ns[kernel], run_kernel, launch));
}

// ---- graphs ------------------------------------------------------------------------------------

// The simulated stream records from sc_capture_begin() to sc_capture_end(): there is nothing to add.
sc_status gpu_capture_begin(struct gpu *gpu, void *stream) {
    (void)gpu;
    (void)stream;
    return SC_OK;
}

sc_status gpu_capture_end(struct gpu *gpu, void *stream, sc_capture capture,
                          struct gpu_graph **graph) {
    (void)gpu;
    (void)stream;
    *graph = NULL;
    if (capture == 0)
        return SC_OK;
    *graph = malloc(sizeof **graph);
    if (*graph == NULL)
        return SC_CONTEXT_LOST;
    (*graph)->capture = capture;
    return SC_OK;
}

sc_status gpu_graph_launch(struct gpu *gpu, struct gpu_graph *graph, void *stream) {
    return terminal(sc_sim_rank_graph_launch(gpu->rank, graph->capture, stream));
}

void gpu_graph_destroy(struct gpu *gpu, struct gpu_graph *graph) {
    (void)gpu;
    free(graph);
}
