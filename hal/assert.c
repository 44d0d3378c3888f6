// SPDX-License-Identifier: AGPL-3.0-only
//
// How a broken invariant ends the process: with one line on stderr, then a core dump. The one place
// in the core that prints, because nobody above can be trusted to report any more.
#include "core/assert.h"

#include <stdio.h>
#include <stdlib.h>

void sc_assert_fail(const char *expression, const char *file, int line) {
    fprintf(stderr,
            "%s:%d: invariant broken: %s; this is a defect of spark_comm, please report it with "
            "this line\n",
            file, line, expression);
    abort();
}
