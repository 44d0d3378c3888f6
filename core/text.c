// SPDX-License-Identifier: AGPL-3.0-only
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

void sc_text_clean(const char *text, char *out, size_t out_bytes) {
    size_t length = strlen(text);
    size_t kept = length;

    if (length >= out_bytes) {
        kept = out_bytes - sizeof "...";
        // Not inside a UTF-8 character.
        while (kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80)
            kept--;
    }
    for (size_t i = 0; i < kept; i++)
        out[i] = ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) ? '?' : text[i];
    memcpy(out + kept, kept < length ? "..." : "", kept < length ? sizeof "..." : 1);
}
