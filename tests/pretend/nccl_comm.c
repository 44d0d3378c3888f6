// SPDX-License-Identifier: AGPL-3.0-only
//
// Communicators: made when all ranks have come, aborted by each rank for itself.
//
//   PRETEND_NCCL_ASYNC=1      the end of a peer's process is told as an asynchronous error, as over
//                             sockets; otherwise nothing tells, as over NVLink
//   PRETEND_NCCL_ABORT_MS=50  what an abort takes at least
//   NCCL_RAS_ENABLE=0         no descriptor is held for a lost peer
#include "tests/pretend/nccl_inside.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ABORT_MS 50

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *comms; // in the lock; also those that are kept until the process ends

// ---- peers that end ----------------------------------------------------------------------------

static bool is_asked_for(const char *variable) {
    const char *value = getenv(variable);
    return value != NULL && strcmp(value, "1") == 0;
}

static ncclResult_t watch(struct ncclComm *comm) {
    if (!is_asked_for("PRETEND_NCCL_ASYNC"))
        return ncclSuccess;
    for (uint32_t r = 0; r < comm->world; r++) {
        int32_t pid = atomic_load(&comm->area->pids[r]);
        comm->watched[r] = (int)syscall(SYS_pidfd_open, pid, 0);
        if (comm->watched[r] >= 0)
            continue;
        if (errno != ESRCH)
            return pretend_fail(ncclSystemError, "pidfd_open of process %d, rank %u: %s", pid, r,
                                strerror(errno));
        atomic_store(&comm->lost, true);
    }
    return ncclSuccess;
}

static void look_at_peers(struct ncclComm *comm) {
    struct pollfd fds[PRETEND_RANKS_MAX];
    for (uint32_t r = 0; r < comm->world; r++)
        fds[r] = (struct pollfd){.fd = comm->watched[r], .events = POLLIN};
    if (!atomic_load(&comm->lost) && poll(fds, comm->world, 0) > 0)
        atomic_store(&comm->lost, true);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    if (comm == NULL || error == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommGetAsyncError: an argument is NULL");
    look_at_peers(comm);
    *error = atomic_load(&comm->lost) ? ncclRemoteError : ncclSuccess;
    return ncclSuccess;
}

static bool has_ended(int32_t pid) {
    struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (process.fd < 0)
        return errno == ESRCH;
    bool ended = poll(&process, 1, 0) > 0;
    (void)close(process.fd);
    return ended;
}

// The real one's RAS dials a lost peer for a minute; here the socket is kept until the process ends.
static void dial_lost_peers(const struct ncclComm *comm) {
    const char *value = getenv("NCCL_RAS_ENABLE");
    if (value != NULL && strcmp(value, "0") == 0)
        return;
    for (uint32_t r = 0; r < comm->world; r++)
        if (has_ended(atomic_load(&comm->area->pids[r])))
            (void)socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

// ---- their lives -------------------------------------------------------------------------------

static void destroy(struct ncclComm *comm) {
    struct ncclComm **at = &comms;
    pthread_mutex_lock(&lock);
    while (*at != comm)
        at = &(*at)->next;
    *at = comm->next;
    pthread_mutex_unlock(&lock);
    for (uint32_t r = 0; r < comm->world; r++)
        if (comm->watched[r] >= 0)
            (void)close(comm->watched[r]);
    pretend_registrations_free(comm);
    pretend_area_leave(comm->area);
    pthread_cond_destroy(&comm->change);
    pthread_mutex_destroy(&comm->lock);
    (void)ncclMemFree(
        comm->scratch); // the GPU's: it waits for all that runs there, as the real one
    free(comm);
}

static struct ncclComm *make(struct pretend_area *area, uint32_t rank, uint32_t world) {
    struct ncclComm *comm = calloc(1, sizeof *comm);
    void *scratch = NULL;
    if (comm == NULL || ncclMemAlloc(&scratch, world * PRETEND_PIECE_BYTES) != ncclSuccess) {
        free(comm);
        pretend_area_leave(area);
        return NULL;
    }
    comm->rank = rank;
    comm->world = world;
    comm->area = area;
    comm->scratch = scratch;
    for (uint32_t r = 0; r < PRETEND_RANKS_MAX; r++)
        comm->watched[r] = -1;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->change, NULL);
    pthread_mutex_lock(&lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&lock);
    return comm;
}

// The real one puts back the device that was current and not the context, and to a thread without one
// that is GPU 0: such a thread has its primary context from then on.
void pretend_context_disturb(void) {
    CUcontext current = NULL;
    if (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == NULL &&
        cuDevicePrimaryCtxRetain(&current, 0) == CUDA_SUCCESS)
        (void)cuCtxSetCurrent(current);
}

static ncclResult_t check(ncclComm_t *comm, int nranks, int rank, const ncclConfig_t *config) {
    if (comm == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommInitRankConfig: comm is NULL");
    *comm = NULL;
    if (nranks < 1 || nranks > (int)PRETEND_RANKS_MAX || rank < 0 || rank >= nranks)
        return pretend_fail(ncclInvalidArgument,
                            "ncclCommInitRankConfig: rank %d of a world of %d: worlds have 1 to %u "
                            "ranks, counted from 0",
                            rank, nranks, PRETEND_RANKS_MAX);
    if (config != NULL && config->blocking == 0)
        return pretend_fail(ncclInvalidUsage,
                            "ncclCommInitRankConfig: blocking 0 is not pretended: make it 1");
    if (pretend_group_is_open())
        return pretend_fail(ncclInvalidUsage, "ncclCommInitRankConfig: inside a group it is not "
                                              "pretended: end the group first");
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config) {
    struct pretend_area *area = NULL;
    ncclResult_t result = check(comm, nranks, rank, config);
    pretend_context_disturb();
    if (result == ncclSuccess)
        result = pretend_area_join(&commId, (uint32_t)rank, (uint32_t)nranks, &area);
    if (result != ncclSuccess)
        return pretend_group_spoil(result);
    struct ncclComm *made = make(area, (uint32_t)rank, (uint32_t)nranks);
    if (made == NULL)
        return pretend_fail(ncclSystemError, "ncclCommInitRankConfig: no memory");
    result = watch(made);
    if (result == ncclSuccess)
        *comm = made;
    else
        destroy(made);
    return result;
}

// ---- their ends --------------------------------------------------------------------------------

void pretend_comm_hold(struct ncclComm *comm) {
    pthread_mutex_lock(&comm->lock);
    comm->launches++;
    pthread_mutex_unlock(&comm->lock);
}

void pretend_comm_let_go(struct ncclComm *comm) {
    pthread_mutex_lock(&comm->lock);
    if (--comm->launches == 0)
        pthread_cond_signal(&comm->change);
    pthread_mutex_unlock(&comm->lock);
}

static void await_launches(struct ncclComm *comm) {
    pthread_mutex_lock(&comm->lock);
    while (comm->launches > 0)
        pthread_cond_wait(&comm->change, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

static void take_a_while(void) {
    const char *value = getenv("PRETEND_NCCL_ABORT_MS");
    long ms = value != NULL ? strtol(value, NULL, 10) : ABORT_MS;
    struct timespec rest = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0 && errno == EINTR) {
    }
}

void pretend_comm_abort(struct ncclComm *comm) {
    take_a_while();
    await_launches(comm);
    dial_lost_peers(comm);
    destroy(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const struct pretend_call call = {.kind = PRETEND_ABORT, .comm = comm};
    if (comm == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommAbort: comm is NULL");
    atomic_store(&comm->aborted, true); // in a group too
    if (pretend_group_is_open())
        return pretend_group_add(&call);
    pretend_comm_abort(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclCommDestroy: comm is NULL");
    await_launches(comm);
    destroy(comm);
    return ncclSuccess;
}
