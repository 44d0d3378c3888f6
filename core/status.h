// SPDX-License-Identifier: AGPL-3.0-only
//
// The answers of spark_comm.h, as the library itself uses them.
#ifndef SC_CORE_STATUS_H
#define SC_CORE_STATUS_H

#include "core/spark_comm.h"

#include <stdbool.h>

static inline bool sc_status_is_terminal(sc_status status) {
    return sc_status_class(status) == SC_CLASS_TERMINAL;
}

#endif
