// SPDX-License-Identifier: AGPL-3.0-only
//
// Groups. What a thread calls between a start and its end is collected, and launched at the outermost
// end: one kernel for each communicator. An error in between makes the end return it and launch
// nothing. An abort ends kernels at once; the rest of it is collected, too, and done at the end whatever
// else went wrong.
#include "tests/pretend/nccl_inside.h"

#include <stdlib.h>

static _Thread_local struct {
    uint32_t depth, count, capacity;
    ncclResult_t error; // the first
    struct pretend_call *calls;
} group;

bool pretend_group_is_open(void) {
    return group.depth > 0;
}

ncclResult_t pretend_group_spoil(ncclResult_t error) {
    if (group.depth > 0 && group.error == ncclSuccess)
        group.error = error;
    return error;
}

static bool make_room(void) {
    if (group.count < group.capacity)
        return true;
    uint32_t capacity = group.capacity == 0 ? 16 : 2 * group.capacity;
    struct pretend_call *calls = realloc(group.calls, capacity * sizeof *calls);
    if (calls == NULL)
        return false;
    group.calls = calls;
    group.capacity = capacity;
    return true;
}

static bool is_of_other_stream(const struct pretend_call *call) {
    for (uint32_t i = 0; i < group.count; i++)
        if (group.calls[i].comm == call->comm && group.calls[i].kind != PRETEND_ABORT &&
            group.calls[i].stream != call->stream)
            return true;
    return false;
}

ncclResult_t pretend_group_add(const struct pretend_call *call) {
    if (group.depth == 0)
        return pretend_launch(call->comm, call, 1);
    if (call->kind != PRETEND_ABORT && is_of_other_stream(call))
        return pretend_group_spoil(pretend_fail(
            ncclInvalidUsage, "a group on several streams is not pretended: give it one"));
    if (!make_room())
        return pretend_group_spoil(
            pretend_fail(ncclSystemError, "no memory for a group of %u calls", group.count));
    group.calls[group.count++] = *call;
    return ncclSuccess;
}

// Whether the call at `index` is the first of its communicator that is to be launched.
static bool leads(const struct pretend_call *calls, uint32_t index) {
    if (calls[index].kind == PRETEND_ABORT)
        return false;
    for (uint32_t i = 0; i < index; i++)
        if (calls[i].comm == calls[index].comm && calls[i].kind != PRETEND_ABORT)
            return false;
    return true;
}

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0)
        return pretend_fail(ncclInvalidUsage, "ncclGroupEnd: this thread has no group open");
    if (--group.depth > 0)
        return ncclSuccess;
    struct pretend_call *calls = group.calls;
    uint32_t count = group.count;
    ncclResult_t result = group.error;
    group.calls = NULL;
    group.count = group.capacity = 0;
    group.error = ncclSuccess;
    for (uint32_t i = 0; i < count && result == ncclSuccess; i++)
        if (leads(calls, i))
            result = pretend_launch(calls[i].comm, calls, count);
    for (uint32_t i = 0; i < count; i++)
        if (calls[i].kind == PRETEND_ABORT)
            pretend_comm_abort(calls[i].comm);
    free(calls);
    return result;
}
