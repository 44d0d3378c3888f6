// SPDX-License-Identifier: AGPL-3.0-only
//
// Sentences put together piece by piece, cut where there is no more room; and what comes from outside,
// made fit to stand in one.
#ifndef SC_CORE_TEXT_H
#define SC_CORE_TEXT_H

#include <stddef.h>

struct sc_text {
    char *to;
    size_t bytes; // at least 1
    size_t used;
};

// An empty one in that memory.
struct sc_text sc_text_begin(char *to, size_t bytes);
void sc_text_add(struct sc_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Copies outside text for use inside a sentence: control bytes become '?', so that it stays on
// one line and sends nothing to the terminal; what does not fit out_bytes is cut and ends in
// "...". Always terminated; out_bytes is at least 4.
void sc_text_clean(const char *text, char *out, size_t out_bytes);

#endif
