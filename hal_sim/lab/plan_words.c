// SPDX-License-Identifier: AGPL-3.0-only
//
// Words, numbers and durations of a plan, and the sentence for each that is wrong.
#include "hal_sim/lab/plan_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHOWN 40 // characters of a wrong word that a sentence repeats
#define GUESS_BYTES 64u

bool sc_plan_refuse(struct sc_plan_line *line, const char *format, ...) {
    va_list arguments;

    if (line->why_bytes == 0)
        return false;
    int used = snprintf(line->why, line->why_bytes, "%s:%" PRIu32 ": ", line->name, line->number);
    if (used >= 0 && (size_t)used < line->why_bytes) {
        va_start(arguments, format);
        vsnprintf(line->why + used, line->why_bytes - (size_t)used, format, arguments);
        va_end(arguments);
    }
    // Words are repeated as they came; the sentence stays on one line all the same.
    for (char *at = line->why; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = '?';
    }
    return false;
}

bool sc_plan_refuse_ours(struct sc_plan_line *line, const char *name) {
    return sc_plan_refuse(line,
                          "\"%s\" is for spark-comm's own runs, and here the ranks run your "
                          "application: leave it out",
                          name);
}

// ---- words --------------------------------------------------------------------------------------

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_joint(char c) {
    return c == ' ' || c == '_' || c == '-';
}

bool sc_plan_cut(struct sc_plan_line *line, const char *statement, size_t bytes) {
    uint32_t count = 0;
    char *to = line->text;

    line->at = 0;
    line->words[0] = NULL;
    if (bytes > SC_PLAN_STATEMENT_BYTES) {
        return sc_plan_refuse(line, "the line has %zu bytes, expected at most %u", bytes,
                              SC_PLAN_STATEMENT_BYTES);
    }
    for (size_t at = 0; at < bytes;) {
        if (is_blank(statement[at])) {
            at++;
            continue;
        }
        if (count == SC_PLAN_WORDS_MAX) {
            return sc_plan_refuse(line, "the line has more than %u words, expected a statement",
                                  SC_PLAN_WORDS_MAX);
        }
        line->words[count++] = to;
        do {
            *to++ = statement[at++];
        } while (at < bytes && !is_blank(statement[at]) && statement[at] != ':' && to[-1] != ':');
        *to++ = '\0';
    }
    line->words[count] = NULL;
    return true;
}

bool sc_plan_take(struct sc_plan_line *line, const char *name) {
    uint32_t word = line->at;
    const char *at = line->words[word];

    for (; *name != '\0' && at != NULL; name++) {
        if (is_joint(*name) && *at == '\0') {
            at = line->words[++word];
        } else if (*at == *name || (is_joint(*name) && is_joint(*at))) {
            at++;
        } else {
            return false;
        }
    }
    if (at == NULL || *at != '\0')
        return false;
    line->at = word + 1;
    return true;
}

bool sc_plan_need(struct sc_plan_line *line, const char *name) {
    if (sc_plan_take(line, name))
        return true;
    if (line->words[line->at] == NULL)
        return sc_plan_refuse(line, "the line ends where \"%s\" is expected", name);
    return sc_plan_refuse(line, "found \"%.*s\", expected \"%s\"", SHOWN, line->words[line->at],
                          name);
}

bool sc_plan_need_end(struct sc_plan_line *line) {
    if (line->words[line->at] == NULL)
        return true;
    return sc_plan_refuse(line, "found \"%.*s\", expected the end of the line", SHOWN,
                          line->words[line->at]);
}

// ---- numbers and durations ----------------------------------------------------------------------

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};
#define UNITS (sizeof units / sizeof units[0])

static bool read_digits(const char **text, uint64_t *out) {
    const char *at = *text;
    uint64_t value = 0;

    for (; *at >= '0' && *at <= '9'; at++) {
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

// Digits, perhaps a fraction no finer than a nanosecond, and a unit.
static bool read_duration(const char *text, uint64_t *out_ns) {
    const char *fraction = NULL;
    uint64_t whole = 0, ns = 0;

    if (!read_digits(&text, &whole))
        return false;
    if (*text == '.') {
        fraction = ++text;
        text += strspn(text, "0123456789");
        if (text == fraction)
            return false;
    }
    size_t unit = 0;
    while (unit < UNITS && strcmp(units[unit].name, text) != 0)
        unit++;
    if (unit == UNITS || __builtin_mul_overflow(whole, units[unit].ns, &ns))
        return false;
    uint64_t digit_ns = units[unit].ns;
    for (; fraction != NULL && fraction < text; fraction++) {
        if (digit_ns < 10 && *fraction != '0')
            return false;
        digit_ns /= 10;
        if (__builtin_add_overflow(ns, (uint64_t)(*fraction - '0') * digit_ns, &ns))
            return false;
    }
    *out_ns = ns;
    return true;
}

void sc_plan_duration_text(uint64_t ns, char out[static SC_PLAN_DURATION_BYTES]) {
    size_t unit = 0;

    while (unit + 1 < UNITS && ns != 0 && ns < units[unit].ns)
        unit++;
    uint64_t unit_ns = units[unit].ns;
    int used = snprintf(out, SC_PLAN_DURATION_BYTES, "%" PRIu64 ".%09" PRIu64, ns / unit_ns,
                        ns % unit_ns * (1000000000 / unit_ns));
    while (out[used - 1] == '0')
        used--;
    used -= out[used - 1] == '.';
    snprintf(out + used, SC_PLAN_DURATION_BYTES - (size_t)used, "%s", units[unit].name);
}

bool sc_plan_take_number(struct sc_plan_line *line, const char *what, uint64_t min, uint64_t max,
                         uint64_t *out) {
    const char *word = line->words[line->at];
    const char *end = word;
    uint64_t value;

    if (word == NULL) {
        return sc_plan_refuse(line,
                              "%s is missing, expected a whole number from %" PRIu64 " to %" PRIu64,
                              what, min, max);
    }
    if (!read_digits(&end, &value) || *end != '\0' || value < min || value > max) {
        return sc_plan_refuse(
            line, "%s is \"%.*s\", expected a whole number from %" PRIu64 " to %" PRIu64, what,
            SHOWN, word, min, max);
    }
    line->at++;
    *out = value;
    return true;
}

bool sc_plan_take_duration(struct sc_plan_line *line, const char *what, uint64_t min_ns,
                           uint64_t max_ns, uint64_t *out_ns) {
    const char *word = line->words[line->at];
    char min[SC_PLAN_DURATION_BYTES], max[SC_PLAN_DURATION_BYTES];
    uint64_t ns;

    if (word == NULL)
        return sc_plan_refuse(line, "%s is missing, expected a duration such as 300ms", what);
    if (!read_duration(word, &ns)) {
        return sc_plan_refuse(line,
                              "%s is \"%.*s\", expected a duration with its unit: ns, us, ms or s",
                              what, SHOWN, word);
    }
    if (ns < min_ns || ns > max_ns) {
        sc_plan_duration_text(min_ns, min);
        sc_plan_duration_text(max_ns, max);
        return sc_plan_refuse(line, "%s is %.*s, expected a duration from %s to %s", what, SHOWN,
                              word, min, max);
    }
    line->at++;
    *out_ns = ns;
    return true;
}

// ---- names nobody knows -------------------------------------------------------------------------

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// Letters to insert, delete or replace to make one of the other.
static uint32_t edit_distance(const char *one, const char *other) {
    uint32_t row[GUESS_BYTES];
    uint32_t columns = 0;

    for (; columns < GUESS_BYTES - 1 && other[columns] != '\0'; columns++)
        row[columns] = columns;
    row[columns] = columns;
    for (; *one != '\0'; one++) {
        uint32_t diagonal = row[0]++;
        for (uint32_t at = 0; at < columns; at++) {
            uint32_t above = row[at + 1];
            uint32_t differs = is_joint(*one) ? !is_joint(other[at]) : *one != other[at];
            row[at + 1] = least(least(above, row[at]) + 1, diagonal + differs);
            diagonal = above;
        }
    }
    return row[columns];
}

void sc_plan_guess(struct sc_plan_guess *guess, const struct sc_plan_line *line, const char *name) {
    const char *word = line->words[line->at];
    const char *next = word != NULL ? line->words[line->at + 1] : NULL;
    char given[2 * GUESS_BYTES];

    if (word == NULL)
        return;
    snprintf(given, sizeof given, "%.*s", (int)GUESS_BYTES - 1, word);
    uint32_t distance = edit_distance(given, name);
    if (next != NULL) {
        snprintf(given, sizeof given, "%.*s %.*s", (int)GUESS_BYTES - 1, word, (int)GUESS_BYTES - 1,
                 next);
        distance = least(distance, edit_distance(given, name));
    }
    if (guess->name == NULL || distance < guess->distance)
        *guess = (struct sc_plan_guess){name, distance};
}

bool sc_plan_refuse_unknown(struct sc_plan_line *line, const char *what,
                            const struct sc_plan_guess *guess) {
    const char *word = line->words[line->at];

    if (word == NULL)
        return sc_plan_refuse(line, "the line ends where %s is expected", what);
    return sc_plan_refuse(line, "\"%.*s\" is not %s, the nearest one is \"%s\"", SHOWN, word, what,
                          guess->name);
}
