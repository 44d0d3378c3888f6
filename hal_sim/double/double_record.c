// SPDX-License-Identifier: AGPL-3.0-only
//
// What happened in a run: hashed always, told in words when somebody listens.
#include "hal_sim/double/inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define SECOND UINT64_C(1000000000)

static int stamp(char *out, size_t bytes, uint64_t ns) {
    return snprintf(out, bytes, "%5" PRIu64 ".%06" PRIu64 "  ", ns / SECOND, ns % SECOND / 1000);
}

void sc_double_trace(struct sc_double *run, struct sc_trace_entry entry) {
    char line[512];

    entry.now_ns = sc_double_now(run) - run->base_ns;
    run->report.hash = sc_trace_hash(run->report.hash, &entry);
    if (run->options.on_trace == NULL)
        return;
    int used = stamp(line, sizeof line, entry.now_ns);
    if (sc_trace_line(&entry, line + used, sizeof line - (size_t)used))
        run->options.on_trace(run->options.trace_arg, line);
}

void sc_double_violation(struct sc_double *run, uint32_t rank, const char *format, ...) {
    uint64_t ns = sc_double_now(run) - run->base_ns;
    char text[400], whose[24] = "";
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (rank != SC_RANK_NONE)
        snprintf(whose, sizeof whose, " rank %" PRIu32, rank);
    if (run->report.violations++ == 0)
        snprintf(run->report.violation, sizeof run->report.violation,
                 "at %" PRIu64 ".%06" PRIu64 " s%s: %s", ns / SECOND, ns % SECOND / 1000, whose,
                 text);
    sc_double_trace(
        run, (struct sc_trace_entry){.kind = SC_TRACE_VIOLATION, .rank = rank, .text = text});
}
