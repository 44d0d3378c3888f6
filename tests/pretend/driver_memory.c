// SPDX-License-Identifier: AGPL-3.0-only
//
// Memory, all of it the host's; and copies, which run on streams as kernels do.
//
// Whatever frees memory waits for all that runs in the context, with the driver's lock held. A copy
// from or to memory that is not page-locked waits for its stream. New memory holds no zeros.
#include "tests/pretend/driver.h"

#include <stdlib.h>
#include <string.h>

#define DEVICE_BYTES (UINT64_C(16) << 30)
#define ALIGNMENT 256u
#define GARBAGE 0xA5

struct memory {
    struct memory *next;
    unsigned char *bytes;
    size_t count;
    CUcontext context;
    bool page_locked; // the host's, not the device's
};

static struct memory *memories; // in the driver's lock

static unsigned char *at(CUdeviceptr address) {
    return (unsigned char *)(uintptr_t)address;
}

// ---- in the driver's lock ----------------------------------------------------------------------

static bool holds(const struct memory *m, const unsigned char *bytes, size_t count) {
    return bytes >= m->bytes && (size_t)(bytes - m->bytes) <= m->count &&
           count <= m->count - (size_t)(bytes - m->bytes);
}

static bool is_known(const void *bytes, size_t count, bool page_locked) {
    for (const struct memory *m = memories; m != NULL; m = m->next)
        if (m->page_locked == page_locked && holds(m, bytes, count))
            return true;
    return false;
}

static uint64_t used_bytes(CUdevice device) {
    uint64_t used = 0;
    for (const struct memory *m = memories; m != NULL; m = m->next)
        if (!m->page_locked && m->context->device == device)
            used += m->count;
    return used;
}

static void *take(CUcontext context, size_t count, bool page_locked) {
    struct memory *m = malloc(sizeof *m);
    size_t rounded = (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    unsigned char *bytes = m != NULL ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    if (bytes == NULL) {
        free(m);
        return NULL;
    }
    memset(bytes, GARBAGE, rounded);
    *m = (struct memory){memories, bytes, count, context, page_locked};
    memories = m;
    return bytes;
}

static void free_at(struct memory **link) {
    struct memory *m = *link;
    *link = m->next;
    free(m->bytes);
    free(m);
}

static CUresult give_back(const void *bytes, bool page_locked) {
    for (struct memory **link = &memories; *link != NULL; link = &(*link)->next) {
        if ((*link)->bytes != bytes || (*link)->page_locked != page_locked)
            continue;
        driver_await_idle((*link)->context);
        free_at(link);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

void driver_memory_free_all(CUcontext context) {
    for (struct memory **link = &memories; *link != NULL;) {
        if ((*link)->context == context)
            free_at(link);
        else
            link = &(*link)->next;
    }
}

// ---- memory ------------------------------------------------------------------------------------

CUresult cuMemAlloc(CUdeviceptr *address, size_t count) {
    CUcontext context;
    if (address == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool fits = count <= DEVICE_BYTES - used_bytes(context->device);
    void *bytes = fits ? take(context, count, false) : NULL;
    *address = (CUdeviceptr)(uintptr_t)bytes;
    return driver_leave(bytes != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemHostAlloc(void **bytes, size_t count, unsigned flags) {
    CUcontext context;
    if (bytes == NULL || count == 0 || count > DEVICE_BYTES || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *bytes = take(context, count, true);
    return driver_leave(*bytes != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult give_back_from(const void *bytes, bool page_locked) {
    CUcontext context;
    CUresult result = driver_enter_unsafe(&context);
    return result == CUDA_SUCCESS ? driver_leave(give_back(bytes, page_locked)) : result;
}

CUresult cuMemFree(CUdeviceptr address) {
    return give_back_from(at(address), false);
}

CUresult cuMemFreeHost(void *bytes) {
    return give_back_from(bytes, true);
}

CUresult cuMemGetInfo(size_t *available, size_t *total) {
    CUcontext context;
    if (available == NULL || total == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *total = DEVICE_BYTES;
    *available = DEVICE_BYTES - used_bytes(context->device);
    return driver_leave(CUDA_SUCCESS);
}

// ---- copies ------------------------------------------------------------------------------------

struct copy {
    unsigned char *to;
    const unsigned char *from; // NULL: `value` instead
    size_t count;
    unsigned char value;
};

// Words arrive whole: kernels that run beside the copy, and the host, may read or write them.
#define COPY_WORD(type, c)                                                                         \
    __atomic_store_n((type *)(void *)(c)->to,                                                      \
                     __atomic_load_n((const type *)(const void *)(c)->from, __ATOMIC_RELAXED),     \
                     __ATOMIC_RELAXED)

static bool is_word(const struct copy *c, size_t bytes) {
    return c->count == bytes && (uintptr_t)c->to % bytes == 0 && (uintptr_t)c->from % bytes == 0;
}

static void run_copy(void *arg) {
    const struct copy *c = arg;
    if (c->from == NULL)
        memset(c->to, c->value, c->count);
    else if (is_word(c, sizeof(uint16_t)))
        COPY_WORD(uint16_t, c);
    else if (is_word(c, sizeof(uint64_t)))
        COPY_WORD(uint64_t, c);
    else
        memcpy(c->to, c->from, c->count);
}

static CUresult put_copy(CUstream stream, struct copy copy) {
    struct copy *c = malloc(sizeof *c);
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *c = copy;
    return driver_put(stream, (struct pretend_work){run_copy, free, c});
}

// `device` and `host` lie in one copy, whichever way it goes.
static CUresult put_checked(CUstream handle, const void *device, const void *host,
                            struct copy copy) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    bool waits = host != NULL && !is_known(host, copy.count, true);
    if (!is_known(device, copy.count, false))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (waits && stream->capture == NULL)
        result = driver_capture_permits();
    if (result == CUDA_SUCCESS)
        result = put_copy(stream, copy);
    waits = waits && stream->capture == NULL;
    (void)driver_leave(CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && waits)
        driver_stream_await(stream);
    return result;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t count, CUstream stream) {
    if (from == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return put_checked(stream, at(to), from, (struct copy){at(to), from, count, 0});
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t count, CUstream stream) {
    if (to == NULL || from == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return put_checked(stream, at(from), to, (struct copy){to, at(from), count, 0});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return put_checked(stream, at(to), NULL, (struct copy){at(to), NULL, count, value});
}
