// SPDX-License-Identifier: AGPL-3.0-only
//
// What the core under test wanted in its last step, and how a test says that it should.
#include "tests/support/core_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct sc_core_view core_rig_view(void) {
    struct sc_core_view view;
    sc_core_view(rig.core, &view);
    return view;
}

static void fail_with(const char *wanted, const char *what, const char *file, int line) {
    print_error("%s %s; the step said %s, state %s, and wanted:\n", wanted, what,
                sc_status_name(rig.verdict), sc_state_name(core_rig_view().state));
    for (uint32_t i = 0; i < rig.last.count; i++) {
        const struct sc_action *a = &rig.last.list[i];
        print_error("  %s kind %u rank %u status %s link %llu mask %llx a %llu b %llu\n",
                    sc_action_name((enum sc_action_type)a->type), a->kind, a->rank,
                    sc_status_name((sc_status)a->status), (unsigned long long)a->link,
                    (unsigned long long)a->mask, (unsigned long long)a->a,
                    (unsigned long long)a->b);
    }
    _fail(file, line);
}

static int find(enum sc_action_type type, uint32_t kind, bool any_kind) {
    for (uint32_t i = 0; i < rig.last.count; i++)
        if (rig.last.list[i].type == type && (any_kind || rig.last.list[i].kind == kind))
            return (int)i;
    return -1;
}

int core_rig_index(enum sc_action_type type) {
    return find(type, 0, true);
}

int core_rig_index_of_frame(enum sc_frame_kind kind) {
    return find(SC_ACTION_SEND, kind, false);
}

const struct sc_action *core_rig_send_of(enum sc_frame_kind kind) {
    int at = core_rig_index_of_frame(kind);
    return at < 0 ? NULL : &rig.last.list[at];
}

uint32_t core_rig_count(enum sc_action_type type) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < rig.last.count; i++)
        count += rig.last.list[i].type == type;
    return count;
}

const struct sc_action *core_rig_expect_action(enum sc_action_type type, const char *file,
                                               int line) {
    int at = core_rig_index(type);
    if (at < 0)
        fail_with("missing action", sc_action_name(type), file, line);
    return &rig.last.list[at];
}

void core_rig_expect_no_action(enum sc_action_type type, const char *file, int line) {
    if (core_rig_index(type) >= 0)
        fail_with("unwanted action", sc_action_name(type), file, line);
}

const struct sc_frame *core_rig_expect_frame(enum sc_frame_kind kind, const char *file, int line) {
    int at = core_rig_index_of_frame(kind);
    if (at < 0)
        fail_with("missing frame", sc_frame_kind_name(kind), file, line);
    return &rig.sent[at];
}

void core_rig_expect_no_frame(enum sc_frame_kind kind, const char *file, int line) {
    if (core_rig_index_of_frame(kind) >= 0)
        fail_with("unwanted frame", sc_frame_kind_name(kind), file, line);
}

const struct sc_action *core_rig_expect_notice(enum sc_notice kind, const char *file, int line) {
    int at = find(SC_ACTION_NOTIFY, kind, false);
    if (at < 0)
        fail_with("missing notice", "of that kind", file, line);
    return &rig.last.list[at];
}

void core_rig_expect_state(enum sc_state state, const char *file, int line) {
    if (core_rig_view().state != state)
        fail_with("not in state", sc_state_name(state), file, line);
}

void core_rig_expect_quiet(const char *file, int line) {
    if (rig.last.count != 0)
        fail_with("unwanted", "actions", file, line);
}
