// SPDX-License-Identifier: AGPL-3.0-only
//
// What the façade behind spark_comm.h offers to worlds and to tests; applications do not see it.
#ifndef SC_CORE_API_H
#define SC_CORE_API_H

#include "core/spark_comm.h"

// Frees a handle whose simulated process is dead, as it stands: nothing is closed, nobody is told. No
// call may be under way on it. A handle that is closed already is left alone.
void sc_api_abandon(sc_comm comm);

// Sets what sc_last_error of this thread says of a call that answers `status`; `call` is a literal, the
// name of the function without sc_.
void sc_api_error(const char *call, sc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
