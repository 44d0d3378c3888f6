// SPDX-License-Identifier: AGPL-3.0-only
//
// Versions and words.
#include "tests/pretend/nccl_inside.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last[256];

ncclResult_t pretend_fail(ncclResult_t result, const char *format, ...) {
    va_list values;
    va_start(values, format);
    (void)vsnprintf(last, sizeof last, format, values);
    va_end(values);
    return result;
}

ncclResult_t ncclGetVersion(int *version) {
    if (version == NULL)
        return pretend_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    *version = 22809;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last;
}

const char *ncclGetErrorString(ncclResult_t result) {
    switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
    }
}
