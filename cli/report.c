// SPDX-License-Identifier: AGPL-3.0-only
//
// Progress, times and JSON of the commands that play runs.
#include "cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define REDRAW_NS (SECOND / 5)

uint64_t sc_report_now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sc_progress_begin(struct sc_progress *progress) {
    *progress =
        (struct sc_progress){.started_ns = sc_report_now_ns(), .terminal = isatty(STDERR_FILENO)};
    progress->shown_ns = progress->started_ns;
}

void sc_progress_show(struct sc_progress *progress, const char *format, ...) {
    uint64_t now = sc_report_now_ns();
    uint64_t every_ns = progress->begun ? REDRAW_NS : SECOND;
    va_list arguments;

    if (now - progress->shown_ns < (progress->terminal ? every_ns : 10 * SECOND))
        return;
    progress->shown_ns = now;
    progress->begun = true;
    progress->shown = progress->terminal;
    if (progress->terminal)
        fputs("\r\033[K", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (!progress->terminal)
        fputc('\n', stderr);
    fflush(stderr);
}

void sc_progress_clear(struct sc_progress *progress) {
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

uint64_t sc_progress_end(struct sc_progress *progress) {
    sc_progress_clear(progress);
    return sc_report_now_ns() - progress->started_ns;
}

const char *sc_report_time(uint64_t ns, char out[static SC_REPORT_TIME_BYTES]) {
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    size_t unit = 0;

    for (; value >= 1000 && unit < 3; unit++)
        value /= 1000;
    int decimals = unit == 0 || value >= 999.95 ? 0 : value >= 99.995 ? 1 : value >= 9.9995 ? 2 : 3;
    snprintf(out, SC_REPORT_TIME_BYTES, "%.*f %s", decimals, value, units[unit]);
    return out;
}

// As raw text, since cJSON's own numbers turn large integers into powers of ten.
bool sc_report_u64(cJSON *object, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

bool sc_report_hex(cJSON *object, const char *key, uint64_t value) {
    char text[24];

    snprintf(text, sizeof text, "%016" PRIx64, value);
    return cJSON_AddStringToObject(object, key, text) != NULL;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

void sc_report_sort(uint64_t *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
}

uint64_t sc_report_quantile(const uint64_t *sorted, size_t count, unsigned percent) {
    size_t rank = (count * percent + 99) / 100;
    if (count == 0)
        return 0;
    return sorted[rank > 0 ? rank - 1 : 0];
}

bool sc_report_json_file(cJSON *object, bool ok, const char *path) {
    char *text = ok ? cJSON_Print(object) : NULL;
    FILE *file = text != NULL ? fopen(path, "w") : NULL;

    cJSON_Delete(object);
    bool written = file != NULL && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    int error = errno;
    if (file != NULL && fclose(file) != 0 && written) {
        written = false;
        error = errno;
    }
    if (!written)
        fprintf(stderr, "spark-comm: %s cannot be written: %s\n", path,
                text != NULL ? strerror(error) : "no memory");
    cJSON_free(text);
    return written;
}

bool sc_report_json(cJSON *object, bool ok) {
    char *text = ok ? cJSON_Print(object) : NULL;

    cJSON_Delete(object);
    if (text == NULL) {
        fprintf(stderr, "spark-comm: no memory to write the report as JSON\n");
        return false;
    }
    puts(text);
    cJSON_free(text);
    return true;
}

int sc_report_end(int result) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    fprintf(stderr, "spark-comm: stdout cannot be written: %s\n", strerror(errno));
    return EXIT_FAILURE;
}
