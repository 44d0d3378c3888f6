// SPDX-License-Identifier: AGPL-3.0-only
//
// Which way sums fastest between these two GPUs: NCCL's all-reduce in place, or a pair exchange and
// our own sum. It depends on what links them, so it is measured as each communicator warms up, by a
// few short rounds of each. Both ranks then take the slower of their two times, by an all-reduce of
// the very kind that is being measured: so both know the same and choose alike, without a word
// between them.
//
// What is compared is the device's time, with nothing of the host's in it: a host that launches
// slowly would make a way of one call win over one of three, but steps that count for speed are
// replayed as CUDA graphs, where no call is made.
#include "hal_cuda/comm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PROBES 2u // rounds of one op each, by which the cost of the others is known
#define ROUNDS 3u
#define PROBE_MS_MAX 3.0f // … of all sizes and both ways: on slower links these times must do
#define HOLD_NS UINT64_C(5000000) // far more than any host needs to enqueue a measurement
#define LARGE_BYTES (UINT64_C(1) << 20)

enum lane { LANE_ALL_REDUCE, LANE_PAIR, LANES };

// What was last chosen in this process; nothing decides by it.
static _Atomic uint64_t chosen_from, chosen_to;

struct lanes {
    struct sc_cuda_comm *m;
    CUstream stream;
    CUdeviceptr send, recv;   // scratch
    CUevent marks[LANES + 1]; // before and behind each
    uint32_t sizes;           // that are measured
    struct numbers {          // in ms an op; what both ranks agree on
        struct sc_cuda_lane_times times;
        float plain, registered; // the faster way at the largest size, in memory of either kind
    } numbers;
};

// So many of one kind that a microsecond between the ranks is little; fewer where one takes long.
static uint32_t repeats(uint32_t round, uint64_t bytes) {
    if (round < PROBES)
        return 1;
    return bytes > LARGE_BYTES ? 4 : 8;
}

static ncclResult_t enqueue_pair(const struct lanes *l, uint64_t bytes) {
    const struct sc_cuda_nccl *n = l->m->nccl;
    int peer = 1 - (int)l->m->spec.rank;
    ncclResult_t result = n->ncclGroupStart_();
    if (result != ncclSuccess)
        return result;
    result = n->ncclSend_((void *)(uintptr_t)l->send, bytes / 2, ncclBfloat16, peer, l->m->comm,
                          (cudaStream_t)l->stream);
    if (result == ncclSuccess)
        result = n->ncclRecv_((void *)(uintptr_t)l->recv, bytes / 2, ncclBfloat16, peer, l->m->comm,
                              (cudaStream_t)l->stream);
    ncclResult_t ended = n->ncclGroupEnd_();
    result = result != ncclSuccess ? result : ended;
    if (result == ncclSuccess &&
        sc_cuda_launch_add(l->m->device, l->send, l->recv, bytes, 0, l->stream) != CUDA_SUCCESS)
        result = ncclUnhandledCudaError;
    return result;
}

static bool enqueue(const struct lanes *l, enum lane lane, uint64_t bytes) {
    void *buffer = (void *)(uintptr_t)l->send;
    if (lane == LANE_PAIR)
        return enqueue_pair(l, bytes) == ncclSuccess;
    return l->m->nccl->ncclAllReduce_(buffer, buffer, bytes / 2, ncclBfloat16, ncclSum, l->m->comm,
                                      (cudaStream_t)l->stream) == ncclSuccess;
}

static bool mark(const struct lanes *l, uint32_t index) {
    return l->m->cu->cuEventRecord_(l->marks[index], l->stream) == CUDA_SUCCESS;
}

// Both ways, behind one all-reduce that brings the ranks together.
static bool enqueue_all(const struct lanes *l, uint64_t bytes, uint32_t count) {
    bool ok = enqueue(l, LANE_ALL_REDUCE, SC_CUDA_WARM_BYTES) && mark(l, 0);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < count && ok; i++)
            ok = enqueue(l, (enum lane)lane, bytes);
        ok = ok && mark(l, lane + 1);
    }
    return ok;
}

// Of an op; the shortest of a few rounds: what else runs on the device only ever adds.
static bool take(const struct lanes *l, enum lane lane, uint32_t count, float *time) {
    float ms = 0;
    if (l->m->cu->cuEventElapsedTime_(&ms, l->marks[lane], l->marks[lane + 1]) != CUDA_SUCCESS)
        return false;
    ms /= (float)count;
    if (*time == 0 || ms < *time)
        *time = ms;
    return true;
}

// In the first round NCCL may connect, and CUDA load a kernel, which can wait for the very stream:
// the hold then ends by its limit, and the round counts for nothing beside the others.
static sc_status measure(struct lanes *l, uint32_t round, uint32_t size) {
    const struct sc_cuda_driver *cu = l->m->cu;
    struct sc_cuda_hold *hold = &l->m->device->hold;
    uint64_t bytes = sc_cuda_lane_bytes(size);
    uint32_t count = repeats(round, bytes);
    bool ok = sc_cuda_hold_begin(hold, cu, HOLD_NS, l->stream) == CUDA_SUCCESS &&
              enqueue_all(l, bytes, count);
    sc_cuda_hold_end(hold);
    sc_status status = ok ? sc_cuda_comm_await(l->m, l->stream) : SC_COMM_FAILED;
    if (status == SC_OK && (!take(l, LANE_ALL_REDUCE, count, &l->numbers.times.all_reduce[size]) ||
                            !take(l, LANE_PAIR, count, &l->numbers.times.pair[size])))
        status = SC_COMM_FAILED;
    return status;
}

// A lane that this rank's environment demands wins at every size: the other one is never faster.
static void prefer(struct sc_cuda_lane_times *times) {
    const char *chosen = getenv("SPARK_COMM_LANE");
    bool pair = chosen != NULL && strcmp(chosen, "pair") == 0;
    bool all_reduce = chosen != NULL && strcmp(chosen, "all_reduce") == 0;
    for (uint32_t size = 0; size < SC_CUDA_LANE_SIZES; size++) {
        if (pair)
            times->all_reduce[size] = SC_CUDA_LANE_NEVER;
        if (all_reduce)
            times->pair[size] = SC_CUDA_LANE_NEVER;
    }
}

// Of each number the larger one of both ranks'. Waits in sc_cuda_comm_await alone, which ends when
// the abort is wanted: a copy to memory that is not page-locked would wait for a peer that may never
// come.
static sc_status take_larger(struct lanes *l, float *mine, size_t count) {
    const struct sc_cuda_driver *cu = l->m->cu;
    void *numbers = l->m->device->numbers, *there = (void *)(uintptr_t)l->send;
    size_t bytes = count * sizeof *mine;
    _Static_assert(sizeof l->numbers <= SC_CUDA_NUMBERS_BYTES, "they fit");
    memcpy(numbers, mine, bytes);
    if (cu->cuMemcpyHtoDAsync_(l->send, numbers, bytes, l->stream) != CUDA_SUCCESS ||
        l->m->nccl->ncclAllReduce_(there, there, count, ncclFloat32, ncclMax, l->m->comm,
                                   (cudaStream_t)l->stream) != ncclSuccess ||
        cu->cuMemcpyDtoHAsync_(numbers, l->send, bytes, l->stream) != CUDA_SUCCESS)
        return SC_COMM_FAILED;
    sc_status status = sc_cuda_comm_await(l->m, l->stream);
    if (status == SC_OK)
        memcpy(mine, numbers, bytes);
    return status;
}

void sc_cuda_pair_range(uint64_t *from_bytes, uint64_t *to_bytes) {
    *from_bytes = atomic_load(&chosen_from);
    *to_bytes = atomic_load(&chosen_to);
}

static sc_status prepare(struct lanes *l) {
    const struct sc_cuda_driver *cu = l->m->cu;
    uint64_t largest = sc_cuda_lane_bytes(l->sizes - 1);
    l->recv = l->send + largest;
    for (uint32_t i = 0; i <= LANES; i++)
        if (cu->cuEventCreate_(&l->marks[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            return SC_COMM_FAILED;
    return cu->cuMemsetD8Async_(l->send, 0, 2 * largest, l->stream) == CUDA_SUCCESS
               ? SC_OK
               : SC_COMM_FAILED;
}

static sc_status measure_rounds(struct lanes *l, uint32_t round, uint32_t end) {
    sc_status status = SC_OK;
    for (; round < end; round++)
        for (uint32_t size = 0; size < l->sizes && status == SC_OK; size++)
            status = measure(l, round, size);
    return status;
}

static float faster(const struct sc_cuda_lane_times *times, uint32_t size) {
    return times->pair[size] < times->all_reduce[size] ? times->pair[size]
                                                       : times->all_reduce[size];
}

// Registered memory saves NCCL a copy on some links; on others it only costs every call some
// microseconds of the host's.
static sc_status measure_registered(struct lanes *l, uint32_t round, uint32_t end) {
    struct lanes other = *l;
    const struct sc_cuda_nccl *n = l->m->nccl;
    uint32_t largest = l->sizes - 1;
    uint64_t bytes = 2 * sc_cuda_lane_bytes(largest);
    sc_status status = SC_OK;
    void *handle = NULL;
    if (n->ncclCommRegister_(l->m->comm, (void *)(uintptr_t)l->send, bytes, &handle) != ncclSuccess)
        return SC_COMM_FAILED;
    other.numbers = (struct numbers){.plain = 0};
    for (; round < end && status == SC_OK; round++)
        status = measure(&other, round, largest);
    if (handle != NULL)
        (void)n->ncclCommDeregister_(l->m->comm, handle);
    l->numbers.plain = faster(&l->numbers.times, largest);
    l->numbers.registered = faster(&other.numbers.times, largest);
    return status;
}

// Both ranks must enqueue alike, so both must know alike whether there are more rounds.
static sc_status measure_all(struct lanes *l) {
    float probe_ms = 0;
    uint32_t end = PROBES;
    sc_status status = measure_rounds(l, 0, PROBES);
    for (uint32_t size = 0; size < l->sizes; size++)
        probe_ms += l->numbers.times.all_reduce[size] + l->numbers.times.pair[size];
    if (status == SC_OK)
        status = take_larger(l, &probe_ms, 1);
    if (probe_ms <= PROBE_MS_MAX)
        end += ROUNDS;
    if (status == SC_OK)
        status = measure_rounds(l, PROBES, end);
    return status == SC_OK ? measure_registered(l, 0, end) : status;
}

// Those who poll read it meanwhile.
static void tell(const struct lanes *l) {
    struct sc_cuda_comm *m = l->m;
    uint64_t from, to;
    sc_cuda_lane_choice(&l->numbers.times, l->sizes, &from, &to);
    pthread_mutex_lock(&m->lock);
    m->pair_from_bytes = from;
    m->pair_to_bytes = to;
    m->registers = l->numbers.registered * SC_CUDA_LANE_NOISE < l->numbers.plain;
    pthread_mutex_unlock(&m->lock);
    atomic_store(&chosen_from, from);
    atomic_store(&chosen_to, to);
}

sc_status sc_cuda_lanes_choose(struct sc_cuda_comm *m, CUstream stream) {
    struct lanes l = {
        .m = m, .stream = stream, .send = m->device->scratch, .sizes = m->device->lane_sizes};
    sc_status status = prepare(&l);
    if (status == SC_OK)
        status = measure_all(&l);
    prefer(&l.numbers.times);
    if (status == SC_OK)
        status = take_larger(&l, (float *)&l.numbers, sizeof l.numbers / sizeof(float));
    if (status == SC_OK)
        tell(&l);
    for (uint32_t i = 0; i <= LANES; i++)
        if (l.marks[i] != NULL)
            (void)m->cu->cuEventDestroy_(l.marks[i]);
    return status;
}
