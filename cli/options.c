// SPDX-License-Identifier: AGPL-3.0-only
//
// Strict option values, and text from outside made fit for a line.

#include "cli/options.h"

#include "core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SC_OPTION_SHOWN_BYTES 64

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void refuse(const char *option, const char *text, const char *expected) {
    char shown[SC_OPTION_SHOWN_BYTES];

    sc_text_clean(text, shown, sizeof shown);
    fprintf(stderr, "spark-comm: %s %s: expected %s\n", option, *shown ? shown : "\"\"", expected);
}

// Takes the digits that *text begins with, at least one, and moves *text past them.
static bool take_digits(const char **text, uint64_t *out) {
    const char *at = *text;
    uint64_t value = 0;

    for (; is_digit(*at); at++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    if (at == *text)
        return false;
    *text = at;
    *out = value;
    return true;
}

bool sc_option_u64(const char *option, const char *text, uint64_t min, uint64_t max,
                   uint64_t *out) {
    char expected[96];
    const char *at = text;
    uint64_t value = 0;

    if (take_digits(&at, &value) && *at == '\0' && value >= min && value <= max) {
        *out = value;
        return true;
    }
    snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64, min, max);
    refuse(option, text, expected);
    return false;
}

bool sc_option_bytes(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *out) {
    static const char units[] = "KMG";
    char expected[112];
    const char *at = text;
    uint64_t value = 0;
    bool fits = take_digits(&at, &value);
    const char *unit = fits && *at != '\0' ? strchr(units, *at) : NULL;

    if (unit != NULL) {
        fits = !__builtin_mul_overflow(value, UINT64_C(1024) << (10 * (unit - units)), &value);
        at++;
    }
    if (fits && *at == '\0' && value >= min && value <= max) {
        *out = value;
        return true;
    }
    snprintf(expected, sizeof expected,
             "a size from %" PRIu64 " to %" PRIu64 " bytes, such as 4096, 64K or 16M", min, max);
    refuse(option, text, expected);
    return false;
}

bool sc_option_address(const char *option, const char *text, char *host, size_t host_bytes,
                       uint32_t *port) {
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    bool bracketed = length > 2 && text[0] == '[' && colon[-1] == ']';
    const char *name = bracketed ? text + 1 : text;
    const char *at = colon != NULL ? colon + 1 : text;
    uint64_t value = 0;

    length -= bracketed ? 2 : 0;
    if (length > 0 && length < host_bytes && take_digits(&at, &value) && *at == '\0' &&
        value >= 1 && value <= UINT16_MAX) {
        memcpy(host, name, length);
        host[length] = '\0';
        *port = (uint32_t)value;
        if (bracketed || strpbrk(host, ":[]") == NULL)
            return true;
    }
    refuse(option, text, "HOST:PORT, such as 192.168.1.10:29500 or [fe80::1]:29500");
    return false;
}
