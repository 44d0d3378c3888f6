// SPDX-License-Identifier: AGPL-3.0-only
//
// Causes in words.
#include "core/config.h"
#include "core/status.h"
#include "core/text.h"

static void add_op(struct sc_text *w, const char *whose, const struct sc_op_desc *op) {
    enum sc_op_kind kind = (enum sc_op_kind)op->kind;
    sc_text_add(w, "%s %s of %llu bytes", whose, sc_op_kind_name(kind),
                (unsigned long long)op->bytes);
    if (kind != SC_OP_ALL_REDUCE && kind != SC_OP_ALL_GATHER && kind != SC_OP_REDUCE_SCATTER)
        sc_text_add(w, " root %u", op->root);
}

const char *sc_cause_text(const struct sc_cause *cause, char *text, size_t bytes) {
    struct sc_text w = sc_text_begin(text, bytes);
    sc_status code = (sc_status)cause->code;
    if (code == SC_OK) {
        sc_text_add(&w, "no epoch was lost");
        return text;
    }
    sc_text_add(&w, "%s", sc_status_name(code));
    if (cause->suspect != SC_RANK_NONE)
        sc_text_add(&w, " rank %u", cause->suspect);
    if (cause->seq != 0)
        sc_text_add(&w, " seq %llu", (unsigned long long)cause->seq);
    if (code == SC_MISMATCH) {
        add_op(&w, ": rank 0 submitted", &cause->op[0]);
        add_op(&w, ", it submitted", &cause->op[1]);
    } else if (code == SC_CONFIG) {
        sc_text_add(&w, ": %s is %llu on rank 0 and %llu on the other",
                    sc_config_field_name((enum sc_config_field)cause->field),
                    (unsigned long long)cause->value[0], (unsigned long long)cause->value[1]);
    } else if (code == SC_RECONNECT) {
        sc_text_add(&w, ": reason %llu", (unsigned long long)cause->value[0]);
    }
    const char *sentence = sc_status_sentence(code);
    if (code == SC_CLOSED) // whose sentence is for the one who calls
        sentence = "it closed its handle, and will come back";
    sc_text_add(&w, " (%s)", sentence);
    return text;
}
