// SPDX-License-Identifier: AGPL-3.0-only
//
// The status table, spelled out once in status.h, as arrays to look names up in.
#include "core/status.h"

static const struct {
    const char *name;
    const char *sentence;
    enum sc_status_class class;
} table[SC_STATUS_COUNT] = {
#define SC_STATUS_ROW(code, class_, text) [SC_##code] = {#code, text, SC_CLASS_##class_},
    SC_STATUS_TABLE(SC_STATUS_ROW)
#undef SC_STATUS_ROW
};

static bool known(sc_status status) {
    return (unsigned)status < SC_STATUS_COUNT;
}

const char *sc_status_name(sc_status status) {
    return known(status) ? table[status].name : "UNKNOWN";
}

const char *sc_status_sentence(sc_status status) {
    return known(status) ? table[status].sentence : "not a status of this library";
}

enum sc_status_class sc_status_class(sc_status status) {
    return known(status) ? table[status].class : SC_CLASS_TERMINAL;
}
