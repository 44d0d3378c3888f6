// SPDX-License-Identifier: AGPL-3.0-only
//
// Real GPUs, seen from the process of one rank: GPU number `rank` by the driver, the other ranks by
// way of the parent.
#include "tests/conformance/gpu.h"
#include "tests/conformance/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 50000u

struct rank {
    struct bench bench;
    int parent;
    uint16_t port;
    struct conf_gpu_calls cu;
    int32_t number; // of its GPU
    CUdevice device;
    CUcontext context, other;
    CUfunction compute;
    CUstream copies; // of the bench's own
};

static struct rank *rank_of(struct bench *b) {
    return b->own;
}

// The capture that the application itself does is told apart by what the driver says of it.
static sc_status meaning(struct bench *b, CUresult result, const char *call) {
    const char *name = "?";
    if (result == CUDA_SUCCESS)
        return SC_OK;
    (void)rank_of(b)->cu.cuGetErrorName_(result, &name);
    fprintf(stderr, "rank %u: %s: %s\n", b->rank, call, name);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? SC_NO_MEMORY : SC_DEVICE_ERROR;
}
#define CU(b, call, ...) meaning((b), rank_of(b)->cu.call##_(__VA_ARGS__), #call)

// ---- time, and the other ranks -----------------------------------------------------------------

static uint64_t now_ns(struct bench *b) {
    struct timespec now;
    (void)b;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * CONF_SECOND + (uint64_t)now.tv_nsec;
}

static sc_status pause_for(struct bench *b, uint64_t duration_ns) {
    struct timespec time = {.tv_sec = (time_t)(duration_ns / CONF_SECOND),
                            .tv_nsec = (long)(duration_ns % CONF_SECOND)};
    (void)b;
    while (nanosleep(&time, &time) != 0 && errno == EINTR) {
    }
    return SC_OK;
}

// A parent that is gone takes its ranks with it.
static void ask(struct bench *b, const struct conf_message *message, struct conf_answer *answer) {
    int parent = rank_of(b)->parent;
    ssize_t moved;
    do
        moved = send(parent, message, sizeof *message, MSG_NOSIGNAL);
    while (moved < 0 && errno == EINTR);
    do
        moved = recv(parent, answer, sizeof *answer, 0);
    while (moved < 0 && errno == EINTR);
    if (moved != sizeof *answer)
        _exit(1);
}

static sc_status gather(struct bench *b, const uint64_t mine[CONF_WORDS],
                        uint64_t all[][CONF_WORDS]) {
    struct conf_message message = {.word = CONF_GATHER};
    struct conf_answer answer;
    memcpy(message.words, mine, sizeof message.words);
    ask(b, &message, &answer);
    memcpy(all, answer.all, sizeof answer.all);
    return (sc_status)answer.status;
}

static sc_status verdict(struct bench *b, bool well) {
    struct conf_message message = {.word = CONF_VERDICT, .value = well};
    struct conf_answer answer;
    memcpy(message.why, b->why, sizeof message.why);
    ask(b, &message, &answer);
    return (sc_status)answer.status;
}

static sc_status marked(struct bench *b, uint64_t mark) {
    struct conf_message message = {.word = CONF_MARKED, .value = mark};
    struct conf_answer answer;
    ask(b, &message, &answer);
    return (sc_status)answer.status;
}

// ---- the library's world -----------------------------------------------------------------------

static void config(struct bench *b, struct sc_config *out) {
    out->rank = b->rank;
    out->world = b->ranks;
    out->device = rank_of(b)->number;
    out->master_host = "127.0.0.1";
    out->master_port = rank_of(b)->port;
}

static sc_status tables(struct bench *b, struct sc_world *out) {
    struct sc_config own;
    char why[400] = "";
    sc_config_init(&own, sizeof own);
    config(b, &own);
    sc_status status = sc_choose_world(&own, out, why, sizeof why);
    if (status != SC_OK)
        fprintf(stderr, "rank %u: %s\n", b->rank, why);
    return status;
}

// ---- the GPU -----------------------------------------------------------------------------------

static CUdeviceptr device_of(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static sc_status attach(struct bench *b) {
    return CU(b, cuCtxSetCurrent, rank_of(b)->context);
}

static sc_status take(struct bench *b, uint64_t bytes, void **buffer) {
    CUdeviceptr made = 0;
    sc_status status = CU(b, cuMemAlloc, &made, bytes);
    *buffer = (void *)(uintptr_t)made;
    return status;
}

static sc_status give(struct bench *b, void *buffer) {
    return CU(b, cuMemFree, device_of(buffer));
}

static sc_status put(struct bench *b, void *device, const void *host, uint64_t bytes) {
    CUstream copies = rank_of(b)->copies;
    sc_status status = CU(b, cuMemcpyHtoDAsync, device_of(device), host, bytes, copies);
    return status == SC_OK ? CU(b, cuStreamSynchronize, copies) : status;
}

static sc_status get(struct bench *b, void *host, const void *device, uint64_t bytes) {
    CUstream copies = rank_of(b)->copies;
    sc_status status = CU(b, cuMemcpyDtoHAsync, host, device_of(device), bytes, copies);
    return status == SC_OK ? CU(b, cuStreamSynchronize, copies) : status;
}

static sc_status stream_create(struct bench *b, void **stream) {
    CUstream made = NULL;
    sc_status status = CU(b, cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);
    *stream = made;
    return status;
}

static sc_status stream_destroy(struct bench *b, void *stream) {
    return CU(b, cuStreamDestroy, stream);
}

static sc_status stream_wait(struct bench *b, void *stream, uint64_t timeout_ns) {
    uint64_t end_ns = now_ns(b) + timeout_ns;
    for (;;) {
        CUresult result = rank_of(b)->cu.cuStreamQuery_(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return meaning(b, result, "cuStreamQuery");
        if (now_ns(b) > end_ns)
            return SC_TIMEOUT;
        (void)pause_for(b, LOOK_NS);
    }
}

static sc_status compute(struct bench *b, void *stream, uint64_t duration_ns, uint16_t *word,
                         uint16_t value) {
    void *arguments[] = {&duration_ns, &word, &value};
    return CU(b, cuLaunchKernel, rank_of(b)->compute, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

// ---- captures: in the mode that forbids the most -----------------------------------------------

static sc_status capture_begin(struct bench *b, void *stream) {
    return CU(b, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static sc_status capture_end(struct bench *b, void *stream, void **graph) {
    CUgraph recorded = NULL;
    CUgraphExec made = NULL;
    sc_status status = CU(b, cuStreamEndCapture, stream, &recorded);
    if (status == SC_OK)
        status = CU(b, cuGraphInstantiateWithFlags, &made, recorded, 0);
    if (recorded != NULL)
        (void)CU(b, cuGraphDestroy, recorded);
    *graph = made;
    return status;
}

static sc_status graph_launch(struct bench *b, void *graph, sc_capture capture, void *stream) {
    (void)capture;
    return CU(b, cuGraphLaunch, graph, stream);
}

static sc_status graph_destroy(struct bench *b, void *graph) {
    return CU(b, cuGraphExecDestroy, graph);
}

// ---- contexts ----------------------------------------------------------------------------------

static CUcontext context_of(struct bench *b, enum conf_context which) {
    struct rank *rank = rank_of(b);
    return which == CONF_CONTEXT_RANK    ? rank->context
           : which == CONF_CONTEXT_OTHER ? rank->other
                                         : NULL;
}

static sc_status context_set(struct bench *b, enum conf_context which) {
    struct rank *rank = rank_of(b);
    if (which == CONF_CONTEXT_OTHER && rank->other == NULL) {
        sc_status status =
            meaning(b, rank->cu.create_context(&rank->other, 0, rank->device), "cuCtxCreate");
        if (status != SC_OK)
            return status;
    }
    return CU(b, cuCtxSetCurrent, context_of(b, which));
}

static bool context_is(struct bench *b, enum conf_context which) {
    CUcontext now = NULL;
    return CU(b, cuCtxGetCurrent, &now) == SC_OK && now == context_of(b, which);
}

static uint32_t contexts_elsewhere(struct bench *b) {
    uint32_t found = 0;
    int count = 0;
    (void)CU(b, cuDeviceGetCount, &count);
    for (int i = 0; i < count; i++) {
        CUdevice device = 0;
        unsigned flags = 0;
        int active = 0;
        if (CU(b, cuDeviceGet, &device, i) == SC_OK && i != rank_of(b)->number &&
            CU(b, cuDevicePrimaryCtxGetState, device, &flags, &active) == SC_OK)
            found += active != 0;
    }
    return found;
}

static const struct conf_world world = {
    .name = "cuda",
    .now_ns = now_ns,
    .pause = pause_for,
    .gather = gather,
    .verdict = verdict,
    .marked = marked,
    .attach = attach,
    .config = config,
    .tables = tables,
    .alloc = take,
    .free = give,
    .put = put,
    .get = get,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .compute = compute,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .context_set = context_set,
    .context_is = context_is,
    .contexts_elsewhere = contexts_elsewhere,
};

// ---- the process -------------------------------------------------------------------------------

static sc_status open_gpu(struct bench *b) {
    struct rank *rank = rank_of(b);
    CUmodule module = NULL;
    if (!conf_gpu_load(&rank->cu))
        return SC_UNAVAILABLE;
    sc_status status = CU(b, cuDeviceGet, &rank->device, rank->number);
    if (status == SC_OK)
        status = CU(b, cuDevicePrimaryCtxRetain, &rank->context, rank->device);
    if (status == SC_OK)
        status = CU(b, cuCtxSetCurrent, rank->context);
    if (status == SC_OK)
        status = CU(b, cuModuleLoadData, &module, conf_kernels);
    if (status == SC_OK)
        status = CU(b, cuModuleGetFunction, &rank->compute, module, "conf_compute");
    if (status == SC_OK)
        status = CU(b, cuStreamCreate, &rank->copies, CU_STREAM_NON_BLOCKING);
    return status;
}

_Noreturn void conf_cuda_live(const struct conf_options *options, const char *live,
                              const struct conf_test *const *tests, uint32_t count) {
    struct rank *rank = calloc(1, sizeof *rank);
    unsigned number, life, parent, port;
    if (rank == NULL || sscanf(live, CONF_LIVE_FORMAT, &number, &life, &parent, &port) != 4)
        exit(2);
    rank->bench = (struct bench){.w = &world,
                                 .own = rank,
                                 .rank = number,
                                 .ranks = options->ranks,
                                 .life = life,
                                 .scale = options->scale};
    rank->parent = (int)parent;
    rank->port = (uint16_t)port;
    rank->number = options->device;
    if (open_gpu(&rank->bench) != SC_OK)
        exit(1);
    conf_live(&rank->bench, tests, count);
    exit(0);
}
