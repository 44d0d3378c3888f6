// SPDX-License-Identifier: AGPL-3.0-only
//
// Causes in words.
#include "core/config.h"
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

struct writer {
    char *text;
    size_t bytes, used;
};

static void add(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct writer *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(w->text + w->used, w->bytes - w->used, format, args);
    va_end(args);
    w->used += length > 0 ? (size_t)length : 0;
    if (w->used >= w->bytes)
        w->used = w->bytes - 1;
}

static void add_op(struct writer *w, const char *whose, const struct sc_op_desc *op) {
    enum sc_op_kind kind = (enum sc_op_kind)op->kind;
    add(w, "%s %s of %llu bytes", whose, sc_op_kind_name(kind), (unsigned long long)op->bytes);
    if (kind != SC_OP_ALL_REDUCE && kind != SC_OP_ALL_GATHER && kind != SC_OP_REDUCE_SCATTER)
        add(w, " root %u", op->root);
}

const char *sc_cause_text(const struct sc_cause *cause, char *text, size_t bytes) {
    struct writer w = {text, bytes, 0};
    sc_status code = (sc_status)cause->code;
    text[0] = '\0';
    if (code == SC_OK) {
        add(&w, "no epoch was lost");
        return text;
    }
    add(&w, "%s", sc_status_name(code));
    if (cause->suspect != SC_RANK_NONE)
        add(&w, " rank %u", cause->suspect);
    if (cause->seq != 0)
        add(&w, " seq %llu", (unsigned long long)cause->seq);
    if (code == SC_MISMATCH) {
        add_op(&w, ": rank 0 submitted", &cause->op[0]);
        add_op(&w, ", it submitted", &cause->op[1]);
    } else if (code == SC_CONFIG) {
        add(&w, ": %s is %llu on rank 0 and %llu on the other",
            sc_config_field_name((enum sc_config_field)cause->field),
            (unsigned long long)cause->value[0], (unsigned long long)cause->value[1]);
    } else if (code == SC_RECONNECT) {
        add(&w, ": reason %llu", (unsigned long long)cause->value[0]);
    }
    const char *sentence = sc_status_sentence(code);
    if (code == SC_CLOSED) // whose sentence is for the one who calls
        sentence = "it closed its handle, and will come back";
    add(&w, " (%s)", sentence);
    return text;
}
