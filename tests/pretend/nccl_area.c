// SPDX-License-Identifier: AGPL-3.0-only
//
// The memory that the ranks of one id share. It has no name: an id says which descriptor of which
// process it is, and the others open that. So nothing is left behind, however processes end.
#include "tests/pretend/nccl_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define IDS_MAX                                                                                    \
    64u // that were made in this process and are not over: beyond, the oldest is given up

struct id {
    unsigned char nonce[16]; // the descriptor's number may have come to mean another
    int32_t pid, fd;
};
_Static_assert(sizeof(struct id) <= sizeof(ncclUniqueId), "it fits");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct id made[IDS_MAX]; // pid 0: none
static uint32_t next;

static uint64_t area_bytes(uint32_t world) {
    return sizeof(struct pretend_area) + (uint64_t)world * world * sizeof(struct pretend_box);
}

// ---- ids ---------------------------------------------------------------------------------------

static void forget(struct id *id) {
    if (id->pid != 0)
        (void)close(id->fd);
    id->pid = 0;
}

static void remember(const struct id *id) {
    pthread_mutex_lock(&lock);
    forget(&made[next]);
    made[next] = *id;
    next = (next + 1) % IDS_MAX;
    pthread_mutex_unlock(&lock);
}

// All ranks have come: nobody will open it again.
static void is_over(const struct id *id) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < IDS_MAX; i++)
        if (made[i].pid == id->pid && memcmp(made[i].nonce, id->nonce, sizeof id->nonce) == 0)
            forget(&made[i]);
    pthread_mutex_unlock(&lock);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
    struct id id = {.pid = (int32_t)getpid()};
    if (uniqueId == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    if (getrandom(id.nonce, sizeof id.nonce, 0) != (ssize_t)sizeof id.nonce)
        return pretend_fail(ncclSystemError, "ncclGetUniqueId: getrandom: %s", strerror(errno));
    id.fd = memfd_create("pretended-nccl", MFD_CLOEXEC);
    if (id.fd < 0)
        return pretend_fail(ncclSystemError, "ncclGetUniqueId: memfd_create: %s", strerror(errno));
    // As large as it may become; it takes no memory but where it is written.
    if (ftruncate(id.fd, (off_t)area_bytes(PRETEND_RANKS_MAX)) != 0 ||
        pwrite(id.fd, id.nonce, sizeof id.nonce, 0) != (ssize_t)sizeof id.nonce) {
        int error = errno;
        (void)close(id.fd);
        return pretend_fail(ncclSystemError, "ncclGetUniqueId: shared memory: %s", strerror(error));
    }
    remember(&id);
    memset(uniqueId, 0, sizeof *uniqueId);
    memcpy(uniqueId, &id, sizeof id);
    return ncclSuccess;
}

// ---- joining -----------------------------------------------------------------------------------

static int open_memory(const struct id *id) {
    char path[64];
    unsigned char nonce[sizeof id->nonce];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", id->pid, id->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (pread(fd, nonce, sizeof nonce, 0) == (ssize_t)sizeof nonce &&
        memcmp(nonce, id->nonce, sizeof nonce) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static ncclResult_t map(const struct id *id, uint32_t world, struct pretend_area **out) {
    int fd = open_memory(id);
    if (fd < 0 && kill(id->pid, 0) != 0)
        return pretend_fail(ncclRemoteError, "process %d, which made the id, is gone", id->pid);
    if (fd < 0)
        return pretend_fail(ncclInvalidUsage, "the id is over, or none; each is good for one "
                                              "communicator");
    void *at = mmap(NULL, area_bytes(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    (void)close(fd);
    if (at == MAP_FAILED)
        return pretend_fail(ncclSystemError, "mmap of %llu bytes: %s",
                            (unsigned long long)area_bytes(world), strerror(error));
    *out = at;
    return ncclSuccess;
}

static ncclResult_t take_seat(struct pretend_area *area, uint32_t rank, uint32_t world) {
    uint32_t none = 0;
    int32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&area->world, &none, world) && none != world)
        return pretend_fail(ncclInvalidArgument, "rank %u is of a world of %u, others of %u", rank,
                            world, none);
    if (!atomic_compare_exchange_strong(&area->pids[rank], &nobody, (int32_t)getpid()))
        return pretend_fail(ncclInvalidUsage, "rank %u has used this id before, in process %d",
                            rank, nobody);
    atomic_fetch_add(&area->present, 1);
    return ncclSuccess;
}

ncclResult_t pretend_area_join(const ncclUniqueId *of, uint32_t rank, uint32_t world,
                               struct pretend_area **out) {
    const struct timespec pause = {.tv_nsec = 200000};
    struct pretend_area *area = NULL;
    struct id id;
    memcpy(&id, of, sizeof id);
    ncclResult_t result = map(&id, world, &area);
    if (result != ncclSuccess)
        return result;
    result = take_seat(area, rank, world);
    if (result != ncclSuccess) {
        (void)munmap(area, area_bytes(world));
        return result;
    }
    while (atomic_load(&area->present) < world)
        (void)nanosleep(&pause, NULL);
    is_over(&id);
    *out = area;
    return ncclSuccess;
}

void pretend_area_leave(struct pretend_area *area) {
    (void)munmap(area, area_bytes(atomic_load(&area->world)));
}
