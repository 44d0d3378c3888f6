// SPDX-License-Identifier: AGPL-3.0-only
//
// Strict option values. Integer arithmetic throughout: a duration keeps its last nanosecond.

#include "cli/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SC_OPTION_SHOWN_BYTES 64

struct duration_unit {
    const char *name;
    uint64_t ns;
};

// Largest first, as a duration is written in the largest unit that divides it.
static const struct duration_unit duration_units[] = {
    {"s", 1000000000u},
    {"ms", 1000000u},
    {"us", 1000u},
    {"ns", 1u},
};
#define DURATION_UNITS (sizeof duration_units / sizeof duration_units[0])

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

static const struct duration_unit *find_unit(const char *name) {
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        if (strcmp(name, duration_units[i].name) == 0)
            return &duration_units[i];
    }
    return NULL;
}

// Adds the fraction's digits, each a tenth of the one before, to *ns.
static bool add_fraction(const char *digits, const char *end, uint64_t unit_ns, uint64_t *ns) {
    if (digits == end)
        return false;
    for (; digits < end; digits++) {
        uint64_t digit = (uint64_t)(*digits - '0');

        if (digit != 0 && unit_ns < 10)
            return false;
        unit_ns /= 10;
        if (__builtin_add_overflow(*ns, digit * unit_ns, ns))
            return false;
    }
    return true;
}

static bool parse_duration(const char *text, uint64_t *out_ns) {
    const char *fraction = NULL;
    const char *at = text;
    const char *fraction_end;
    const struct duration_unit *unit;
    uint64_t whole = 0;
    uint64_t ns = 0;

    if (!take_digits(&at, &whole))
        return false;
    if (*at == '.') {
        fraction = ++at;
        while (is_digit(*at))
            at++;
    }
    fraction_end = at;
    unit = find_unit(at);
    if (unit == NULL || __builtin_mul_overflow(whole, unit->ns, &ns))
        return false;
    if (fraction != NULL && !add_fraction(fraction, fraction_end, unit->ns, &ns))
        return false;
    *out_ns = ns;
    return true;
}

static void format_duration(uint64_t ns, char *out, size_t out_bytes) {
    size_t i = 0;

    while (ns % duration_units[i].ns != 0)
        i++;
    snprintf(out, out_bytes, "%" PRIu64 "%s", ns / duration_units[i].ns, duration_units[i].name);
}

bool sc_option_duration_ns(const char *option, const char *text, uint64_t min_ns, uint64_t max_ns,
                           uint64_t *out_ns) {
    char expected[128];
    char min[32];
    char max[32];
    uint64_t ns = 0;

    if (parse_duration(text, &ns) && ns >= min_ns && ns <= max_ns) {
        *out_ns = ns;
        return true;
    }
    format_duration(min_ns, min, sizeof min);
    format_duration(max_ns, max, sizeof max);
    snprintf(expected, sizeof expected,
             "a duration from %s to %s with its unit, such as 300ms, 2s or 1.5s", min, max);
    refuse(option, text, expected);
    return false;
}

void sc_text_clean(const char *text, char *out, size_t out_bytes) {
    size_t length = strlen(text);
    size_t kept = length;

    if (length >= out_bytes) {
        kept = out_bytes - sizeof "...";
        // /* Not inside a UTF-8 character.
        while (kept > 0 && ((unsigned char)text[kept] & 0xC0) == 0x80)
            kept--;
    }
    for (size_t i = 0; i < kept; i++)
        out[i] = ((unsigned char)text[i] < 0x20 || text[i] == 0x7F) ? '?' : text[i];
    memcpy(out + kept, kept < length ? "..." : "", kept < length ? sizeof "..." : 1);
}
