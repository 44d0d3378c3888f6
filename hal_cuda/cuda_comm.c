// SPDX-License-Identifier: AGPL-3.0-only
//
// Communicators. NCCL's create and abort wait, for peers and for kernels, so each communicator has
// a worker thread: it creates blocking (a non-blocking communicator pays for every group with a
// thread), warms up, then sleeps until the abort is wanted, which it calls, too. A worker whose
// create does not come back, or whose abort does not, is left behind with what it holds; it cleans
// up if it ever returns.
#include "hal_cuda/comm.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEFT_MAX 8u    // workers left behind; one more create is refused
#define LOOK_NS 50000l // how often a warm-up that nobody signals is looked at

_Static_assert(sizeof(ncclUniqueId) == SC_COMM_ID_BYTES, "an id is NCCL's");

static _Atomic uint32_t left; // workers left behind in this process that have not ended

// ---- the worker ----

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

// Inside the lock.
static void set_state(struct sc_cuda_comm *m, enum sc_comm_state state, sc_status error) {
    m->state = state;
    m->error = error;
    if (!m->left_behind) {
        const struct sc_host *host = sc_posix_host(m->posix);
        host->wake(host->ctx);
    }
}

static ncclResult_t create(struct sc_cuda_comm *m, ncclComm_t *comm) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 1;
    memcpy(&id, m->spec.id.bytes, sizeof id);
    return m->nccl->ncclCommInitRankConfig_(comm, (int)m->spec.world, id, (int)m->spec.rank,
                                            &config);
}

// In the scratch memory: one exchange with every peer, and one all-reduce: NCCL connects at first
// use, which takes longer than all the rest.
static ncclResult_t enqueue_warm_up(struct sc_cuda_comm *m, CUdeviceptr memory, CUstream stream) {
    const struct sc_cuda_nccl *n = m->nccl;
    char *from = (char *)(uintptr_t)memory, *to = from + SC_CUDA_WARM_BYTES;
    ncclResult_t result = n->ncclGroupStart_();
    if (result != ncclSuccess)
        return result;
    for (uint32_t r = 0; r < m->spec.world && result == ncclSuccess; r++) {
        if (r == m->spec.rank)
            continue;
        result =
            n->ncclSend_(from, SC_CUDA_WARM_BYTES, ncclChar, (int)r, m->comm, (cudaStream_t)stream);
        if (result == ncclSuccess)
            result = n->ncclRecv_(to + r * SC_CUDA_WARM_BYTES, SC_CUDA_WARM_BYTES, ncclChar, (int)r,
                                  m->comm, (cudaStream_t)stream);
    }
    ncclResult_t ended = n->ncclGroupEnd_();
    result = result != ncclSuccess ? result : ended;
    if (result != ncclSuccess)
        return result;
    return n->ncclAllReduce_(from, from, SC_CUDA_WARM_BYTES / 2, ncclBfloat16, ncclSum, m->comm,
                             (cudaStream_t)stream);
}

// Sleeps for a moment, or until the abort is wanted. Says whether it is.
static bool rest(struct sc_cuda_comm *m) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    pthread_mutex_lock(&m->lock);
    if (!m->abort_wanted)
        (void)pthread_cond_timedwait(&m->change, &m->lock, &until);
    bool wanted = m->abort_wanted;
    pthread_mutex_unlock(&m->lock);
    return wanted;
}

// The stream is asked outside the lock: the driver may keep whoever asks, and those who poll must not
// wait for that.
sc_status sc_cuda_comm_await(struct sc_cuda_comm *m, CUstream stream) {
    for (;;) {
        CUresult result = m->cu->cuStreamQuery_(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return result == CUDA_SUCCESS ? SC_OK : SC_COMM_FAILED;
        if (rest(m))
            return SC_INPROGRESS;
    }
}

static sc_status warm_up(struct sc_cuda_comm *m) {
    CUdeviceptr scratch = m->device->scratch;
    CUstream stream = NULL;
    sc_status status = SC_COMM_FAILED;
    if (m->cu->cuStreamCreateWithPriority_(&stream, CU_STREAM_NON_BLOCKING, 0) == CUDA_SUCCESS &&
        m->cu->cuMemsetD8Async_(scratch, 0, SC_CUDA_WARM_BYTES, stream) == CUDA_SUCCESS &&
        enqueue_warm_up(m, scratch, stream) == ncclSuccess)
        status = sc_cuda_comm_await(m, stream);
    if (status == SC_OK && m->spec.world == 2)
        status = sc_cuda_lanes_choose(m, stream);
    if (status == SC_INPROGRESS) { // wanted no more: what it enqueued ends with the abort
        (void)m->nccl->ncclCommAbort_(m->comm);
        m->comm = NULL;
        (void)m->cu->cuStreamSynchronize_(stream);
    }
    if (stream != NULL)
        (void)m->cu->cuStreamDestroy_(stream);
    return status;
}

// In a group an abort only raises its flags, and frees the communicator when the group ends. By the flags
// a kernel ends that a lost peer keeps on the GPU, and with it whoever waits in the driver for the GPU:
// perhaps a thread that is just enqueueing an op of this communicator.
static void abort_comm(struct sc_cuda_comm *m) {
    struct sc_cuda_device *d = m->device;
    bool grouped = m->nccl->ncclGroupStart_() == ncclSuccess;
    (void)m->nccl->ncclCommAbort_(m->comm);
    pthread_mutex_lock(&d->lock);
    atomic_fetch_add(&d->awaited, 1);
    while (atomic_load(&d->visitors) != 0)
        pthread_cond_wait(&d->change, &d->lock);
    atomic_fetch_sub(&d->awaited, 1);
    pthread_mutex_unlock(&d->lock);
    if (grouped)
        (void)m->nccl->ncclGroupEnd_();
}

static void destroy(struct sc_cuda_comm *m) {
    sc_cuda_device_let_go(m->device);
    pthread_cond_destroy(&m->change);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void *work(void *arg) {
    struct sc_cuda_comm *m = arg;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; // beside any capture of others
    (void)pthread_setname_np(pthread_self(), "spark-comm");
    (void)m->cu->cuCtxSetCurrent_(m->device->context);
    (void)m->cu->cuThreadExchangeStreamCaptureMode_(&mode);
    ncclComm_t comm = NULL;
    sc_cuda_preload_await(m->device);
    ncclResult_t result = create(m, &comm);
    bool formed = result == ncclSuccess && comm != NULL;

    pthread_mutex_lock(&m->lock);
    m->created = true;
    // In progress: a file of NCCL's own says NCCL_COMM_BLOCKING=0. What forms is only aborted.
    m->comm = formed || result == ncclInProgress ? comm : NULL;
    m->formed_ns = now_ns();
    bool wanted = !m->abort_wanted;
    pthread_mutex_unlock(&m->lock);

    sc_status status = SC_COMM_FAILED;
    if (wanted && formed)
        status = warm_up(m);
    pthread_mutex_lock(&m->lock);
    if (!m->abort_wanted)
        set_state(m, status == SC_OK ? SC_COMM_READY : SC_COMM_ERROR, status);
    while (!m->abort_wanted)
        pthread_cond_wait(&m->change, &m->lock);
    pthread_mutex_unlock(&m->lock);

    if (m->comm != NULL)
        abort_comm(m);
    pthread_mutex_lock(&m->lock);
    set_state(m, SC_COMM_GONE, SC_OK);
    bool left_behind = m->left_behind;
    pthread_mutex_unlock(&m->lock);
    if (left_behind) {
        destroy(m);
        atomic_fetch_sub(&left, 1);
    }
    return NULL;
}

bool sc_cuda_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

// ---- the verbs ----

static struct sc_cuda_comm **slot_of(struct sc_cuda *c, uint64_t handle) {
    for (uint32_t i = 0; handle != 0 && i < SC_CUDA_COMMS_MAX; i++)
        if (c->comms[i] != NULL && c->comms[i]->handle == handle)
            return &c->comms[i];
    return NULL;
}

sc_status sc_cuda_comm_id(void *ctx, struct sc_comm_id *out) {
    struct sc_cuda *c = ctx;
    ncclUniqueId id;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    if (c->nccl->ncclGetUniqueId_(&id) != ncclSuccess)
        return SC_COMM_FAILED;
    memcpy(out->bytes, &id, sizeof out->bytes);
    return SC_OK;
}

sc_status sc_cuda_comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *handle) {
    struct sc_cuda *c = ctx;
    uint32_t i = 0;
    while (i < SC_CUDA_COMMS_MAX && c->comms[i] != NULL)
        i++;
    if (c->context_lost)
        return SC_CONTEXT_LOST;
    if (atomic_load(&left) > LEFT_MAX)
        return SC_COMM_FAILED;
    struct sc_cuda_comm *m = i < SC_CUDA_COMMS_MAX ? calloc(1, sizeof *m) : NULL;
    if (m == NULL)
        return SC_NO_MEMORY;
    m->handle = ++c->generation;
    m->spec = *spec;
    m->cu = c->cu;
    m->nccl = c->nccl;
    m->device = c->device;
    sc_cuda_device_hold(m->device);
    m->posix = c->posix;
    m->state = SC_COMM_FORMING;
    m->registers = true;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&m->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&m->lock, NULL);
    if (!sc_cuda_thread_start(&m->thread, work, m)) {
        destroy(m);
        return SC_NO_MEMORY;
    }
    c->comms[i] = m;
    *handle = m->handle;
    return SC_OK;
}

// It is the worker's own from now on. Inside its lock.
static void leave_behind(struct sc_cuda *c, struct sc_cuda_comm **slot) {
    struct sc_cuda_comm *m = *slot;
    m->left_behind = true;
    bool gone = m->state == SC_COMM_GONE;
    sc_cuda_registrations_end(c, m->handle);
    *slot = NULL;
    if (!gone) {
        atomic_fetch_add(&left, 1);
        (void)pthread_detach(m->thread);
    }
    pthread_mutex_unlock(&m->lock);
    if (!gone)
        return;
    (void)pthread_join(m->thread, NULL);
    destroy(m);
}

static sc_status error_of(const struct sc_cuda *c, ncclComm_t comm) {
    ncclResult_t error = ncclSuccess;
    ncclResult_t asked = c->nccl->ncclCommGetAsyncError_(comm, &error);
    bool well = asked == ncclSuccess && (error == ncclSuccess || error == ncclInProgress);
    return well ? SC_OK : SC_ASYNC_ERROR;
}

sc_status sc_cuda_comm_poll(void *ctx, uint64_t handle, struct sc_comm_report *report) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_comm **slot = slot_of(c, handle);
    if (slot == NULL)
        return SC_INVALID;
    struct sc_cuda_comm *m = *slot;
    pthread_mutex_lock(&m->lock);
    struct sc_comm_report now = {m->state, m->error, m->formed_ns, m->pair_from_bytes,
                                 m->pair_to_bytes};
    if (m->orphaned && m->state != SC_COMM_GONE) {
        leave_behind(c, slot);
        *report = (struct sc_comm_report){.state = SC_COMM_GONE};
        return SC_OK;
    }
    bool usable = m->state == SC_COMM_READY && !m->abort_wanted;
    pthread_mutex_unlock(&m->lock);
    if (usable && c->ready.handle != handle) {
        c->ready.handle = 0;
        c->ready.comm = m->comm;
        c->ready.registers = m->registers;
        c->ready.handle = handle;
    }
    if (usable && (now.error = error_of(c, m->comm)) != SC_OK)
        now.state = SC_COMM_ERROR;
    if (c->context_lost && now.state != SC_COMM_GONE) {
        now.state = SC_COMM_ERROR;
        now.error = SC_CONTEXT_LOST;
    }
    *report = now;
    if (now.state != SC_COMM_GONE)
        return SC_OK;
    (void)pthread_join(m->thread, NULL); // it has done its last
    destroy(m);
    *slot = NULL;
    sc_cuda_registrations_end(c, handle);
    return SC_OK;
}

sc_status sc_cuda_comm_error(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_guard guard;
    sc_cuda_enter(c, &guard);
    ncclComm_t comm = sc_cuda_comm_usable(c, handle);
    sc_status status = comm != NULL ? error_of(c, comm) : SC_INVALID;
    sc_cuda_leave(c, &guard);
    return status;
}

sc_status sc_cuda_comm_abort(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_comm **slot = slot_of(c, handle);
    if (slot == NULL)
        return SC_INVALID;
    struct sc_cuda_comm *m = *slot;
    pthread_mutex_lock(&m->lock);
    if (m->abort_wanted) {
        pthread_mutex_unlock(&m->lock);
        return SC_INVALID;
    }
    if (c->ready.handle == handle)
        c->ready.handle = 0;
    m->abort_wanted = true;
    pthread_cond_signal(&m->change);
    // A create that has not returned has nothing on any stream and knows no memory of ours: it is
    // gone for us at once, and its worker aborts what it gets.
    m->orphaned = !m->created;
    pthread_mutex_unlock(&m->lock);
    return SC_OK;
}

sc_status sc_cuda_comm_abandon(void *ctx, uint64_t handle) {
    struct sc_cuda *c = ctx;
    struct sc_cuda_comm **slot = slot_of(c, handle);
    if (slot == NULL)
        return SC_INVALID;
    pthread_mutex_lock(&(*slot)->lock);
    leave_behind(c, slot);
    return SC_OK;
}

uint64_t sc_cuda_comm_live(const struct sc_cuda *c) {
    uint64_t newest = 0;
    for (uint32_t i = 0; i < SC_CUDA_COMMS_MAX; i++)
        if (c->comms[i] != NULL && c->comms[i]->handle > newest)
            newest = c->comms[i]->handle;
    return newest;
}

void sc_cuda_comms_close(struct sc_cuda *c) {
    for (uint32_t i = 0; i < SC_CUDA_COMMS_MAX; i++) {
        struct sc_cuda_comm *m = c->comms[i];
        if (m == NULL)
            continue;
        pthread_mutex_lock(&m->lock);
        m->abort_wanted = true;
        pthread_cond_signal(&m->change);
        leave_behind(c, &c->comms[i]);
    }
}
