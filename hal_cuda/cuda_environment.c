// SPDX-License-Identifier: AGPL-3.0-only
//
// What the environment tells NCCL. NCCL obeys it without a word, and what is set on one machine and not on
// the other is the commonest reason why ranks do not meet, or are slow: so the variables that are known
// to matter are told at open. Of the rest of the environment nothing is told.
//
// This file needs neither CUDA nor NCCL, and is built wherever the library is.
#include "core/text.h"
#include "hal_cuda/sc_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#define VALUE_BYTES 80u
#define LINE_BYTES 256u

// Those that speak for themselves.
static const char *const plain[] = {
    "NCCL_DEBUG",
    "NCCL_COMM_BLOCKING",
    "NCCL_RAS_ENABLE",
    // the way to other hosts
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_FAMILY",
    "NCCL_IB_DISABLE",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_TIMEOUT",
    "NCCL_IB_RETRY_CNT",
    // the way to other GPUs of the host
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_CUMEM_ENABLE",
    // how payloads go there
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
};

#define BOUNDS_NOTHING                                                                             \
    ": NCCL does not read it, and it bounds no collective; config.timing.op_ns does, or "          \
    "SPARK_COMM_OP_MS"

// Those that are often taken for something else.
static const struct {
    const char *name;
    enum sc_note_kind kind;
    const char *words; // behind the value
} explained[] = {
    {"NCCL_TIMEOUT", SC_NOTE_WARNING, BOUNDS_NOTHING},
    {"NCCL_WATCHDOG_TIMEOUT", SC_NOTE_WARNING, BOUNDS_NOTHING},
    {"NCCL_COMM_ID", SC_NOTE_WARNING,
     ": it gives all communicators the same id, so that ranks of two attempts may meet; unset it"},
    {"NCCL_HOSTID", SC_NOTE_ENVIRONMENT,
     ": ranks of one host that differ in it are, to NCCL, on different hosts"},
    {"NCCL_CONF_FILE", SC_NOTE_ENVIRONMENT, ": NCCL takes more variables from there"},
};

static void tell(const char *name, enum sc_note_kind kind, const char *words, sc_remark *remark,
                 void *arg) {
    const char *value = getenv(name);
    char shown[VALUE_BYTES], line[LINE_BYTES];
    if (value == NULL)
        return;
    sc_text_clean(value, shown, sizeof shown);
    snprintf(line, sizeof line, "%s=%s%s", name, shown, words);
    remark(arg, kind, line);
}

void sc_cuda_environment_remarks(sc_remark *remark, void *arg) {
    for (size_t i = 0; i < sizeof explained / sizeof explained[0]; i++)
        tell(explained[i].name, explained[i].kind, explained[i].words, remark, arg);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        tell(plain[i], SC_NOTE_ENVIRONMENT, "", remark, arg);
}

sc_status sc_cuda_environment_check(char *why, size_t why_bytes) {
    const char *value = getenv("NCCL_COMM_BLOCKING");
    char shown[VALUE_BYTES];
    // As NCCL reads it: a word is 0, "true" too.
    if (value == NULL || value[0] == '\0' || strtoll(value, NULL, 0) != 0)
        return SC_OK;
    sc_text_clean(value, shown, sizeof shown);
    snprintf(why, why_bytes,
             "NCCL_COMM_BLOCKING=%s, to NCCL 0, makes all communicators of this process "
             "non-blocking, whatever they are created with, and such a one cannot be used here; "
             "unset it, and create those of the application with ncclConfig_t.blocking = 0",
             shown);
    return SC_INVALID;
}
