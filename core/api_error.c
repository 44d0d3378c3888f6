// SPDX-License-Identifier: AGPL-3.0-only
//
// What sc_last_error says: noted cheaply when a call fails, put into words when somebody asks.
#include "core/api_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local struct {
    const char *call;
    sc_status status;
    struct sc_cause cause; // code SC_OK: none
    char detail[640];      // instead of the status's own sentence
    char text[960];
} last;

// What was noted of this failure just before, by the two below, is not yet of any call.
void sc_error_set(const char *call, sc_status status) {
    if (last.call != NULL) {
        last.detail[0] = '\0';
        last.cause.code = SC_OK;
    }
    last.call = call;
    last.status = status;
}

void sc_error_detail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last.detail, sizeof last.detail, format, args);
    va_end(args);
    last.call = NULL;
    last.cause.code = SC_OK;
}

void sc_error_cause(const struct sc_cause *cause) {
    last.call = NULL;
    last.detail[0] = '\0';
    last.cause = *cause;
}

void sc_api_error(const char *call, sc_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last.detail, sizeof last.detail, format, args);
    va_end(args);
    last.call = call;
    last.status = status;
    last.cause.code = SC_OK;
}

const void *sc_error_thread(void) {
    return &last;
}

const char *sc_last_error(void) {
    if (last.call == NULL)
        return "no call on this thread has failed yet";
    const char *why = last.detail[0] != '\0' ? last.detail : sc_status_sentence(last.status);
    int length = snprintf(last.text, sizeof last.text, "sc_%s: %s: %s", last.call,
                          sc_status_name(last.status), why);
    if (last.cause.code != SC_OK && length > 0 && (size_t)length < sizeof last.text - 2) {
        char cause[256];
        snprintf(last.text + length, sizeof last.text - (size_t)length, "; %s",
                 sc_cause_text(&last.cause, cause, sizeof cause));
    }
    return last.text;
}
