// SPDX-License-Identifier: AGPL-3.0-only
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>

struct sc_text sc_text_begin(char *to, size_t bytes) {
    to[0] = '\0';
    return (struct sc_text){to, bytes, 0};
}

void sc_text_add(struct sc_text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text->to + text->used, text->bytes - text->used, format, args);
    va_end(args);
    text->used += length > 0 ? (size_t)length : 0;
    if (text->used >= text->bytes)
        text->used = text->bytes - 1;
}
