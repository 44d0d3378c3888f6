// SPDX-License-Identifier: AGPL-3.0-only
//
// The hash of a trace, and its lines. Every field that the hash folds goes through one function, so
// that neither padding nor an address can get in.
#include "hal_sim/lab/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

// ---- the hash -----------------------------------------------------------------------------------

// One to one in the value for every hash, and in the hash for every value: nothing folds away.
static inline uint64_t fold(uint64_t hash, uint64_t value) {
    uint64_t mixed = (hash ^ value) + UINT64_C(0x9E3779B97F4A7C15);

    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return mixed ^ mixed >> 29;
}

static uint64_t fold_text(uint64_t hash, const char *text) {
    size_t bytes = strlen(text);

    hash = fold(hash, bytes);
    for (size_t done = 0; done < bytes; done += 8) {
        uint64_t word = 0;
        for (size_t at = done; at < bytes && at < done + 8; at++)
            word = word << 8 | (unsigned char)text[at];
        hash = fold(hash, word);
    }
    return hash;
}

static uint64_t fold_notice(uint64_t hash, const struct sc_action *notice) {
    hash = fold(hash, (uint64_t)notice->type << 32 | notice->kind);
    hash = fold(hash, (uint64_t)notice->rank << 32 | notice->status);
    hash = fold(hash, notice->epoch);
    hash = fold(hash, notice->link);
    hash = fold(hash, notice->mask);
    hash = fold(hash, notice->a);
    return fold(hash, notice->b);
}

static uint64_t fold_cause(uint64_t hash, const struct sc_cause *cause) {
    hash = fold(hash, (uint64_t)cause->code << 32 | cause->suspect);
    hash = fold(hash, cause->seq);
    for (int at = 0; at < 2; at++) {
        hash = fold(hash, cause->value[at]);
        hash = fold(hash, (uint64_t)cause->op[at].kind << 32 | cause->op[at].root);
        hash = fold(hash, cause->op[at].bytes);
    }
    return fold(hash, (uint64_t)cause->field << 32 | cause->reserved);
}

static uint64_t fold_recovery(uint64_t hash, const struct sc_recovery *recovery) {
    const struct sc_phases *phases = &recovery->phases;

    hash = fold(hash, recovery->epoch);
    hash = fold_cause(hash, &recovery->cause);
    hash = fold(hash, phases->detect_ns);
    hash = fold(hash, phases->agree_ns);
    hash = fold(hash, phases->abort_ns);
    hash = fold(hash, phases->wait_ns);
    hash = fold(hash, phases->form_ns);
    hash = fold(hash, phases->warmup_ns);
    hash = fold(hash, (uint64_t)recovery->world << 32);
    for (uint32_t rank = 0; rank < recovery->world && rank < SC_WORLD_MAX; rank++) {
        const struct sc_rank_record *record = &recovery->ranks[rank];
        hash = fold(hash, record->incarnation);
        hash = fold(hash, record->ready_epoch);
        hash = fold(hash, record->submitted);
        hash = fold(hash, record->completed);
        hash = fold(hash, record->mark);
        hash = fold(hash, (uint64_t)record->fresh << 32 | record->reserved);
    }
    return hash;
}

uint64_t sc_trace_hash(uint64_t hash, const struct sc_trace_entry *entry) {
    unsigned parts = (unsigned)(entry->text != NULL) | (unsigned)(entry->notice != NULL) << 1 |
                     (unsigned)(entry->cause != NULL) << 2 |
                     (unsigned)(entry->recovery != NULL) << 3;

    hash = fold(hash, (uint64_t)entry->kind << 8 | parts);
    hash = fold(hash, (uint64_t)entry->former << 32 | entry->rank);
    hash = fold(hash, entry->now_ns);
    hash = fold(hash, entry->epoch);
    hash = fold(hash, entry->a);
    hash = fold(hash, entry->b);
    if (entry->text != NULL)
        hash = fold_text(hash, entry->text);
    if (entry->notice != NULL)
        hash = fold_notice(hash, entry->notice);
    if (entry->cause != NULL)
        hash = fold_cause(hash, entry->cause);
    if (entry->recovery != NULL)
        hash = fold_recovery(hash, entry->recovery);
    return hash;
}

// ---- lines --------------------------------------------------------------------------------------

struct line {
    char *out;
    size_t bytes, used;
};

// What does not fit is cut.
__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...) {
    size_t room = line->bytes - line->used;
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(line->out + line->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        line->used += (size_t)length < room ? (size_t)length : room - 1;
}

static uint64_t epoch_count(uint64_t epoch) {
    return epoch >> 24;
}

// " rank 1", " ranks 1 2", or nothing.
static void add_ranks(struct line *line, uint64_t mask) {
    const char *before = (mask & (mask - 1)) != 0 ? " ranks" : " rank";

    for (uint32_t rank = 0; rank < SC_WORLD_MAX; rank++) {
        if ((mask >> rank & 1) == 0)
            continue;
        add(line, "%s %" PRIu32, before, rank);
        before = "";
    }
}

static void add_op(struct line *line, const struct sc_op_desc *op) {
    add(line, "%s %" PRIu64 " bytes", sc_op_kind_name((enum sc_op_kind)op->kind), op->bytes);
    if (op->kind == SC_OP_BROADCAST)
        add(line, " root %" PRIu32, op->root);
    if (op->kind == SC_OP_SEND || op->kind == SC_OP_RECV)
        add(line, " peer %" PRIu32, op->root);
}

// Values come as the coordinator's and the other rank's; `rank` reads them as its own and theirs.
static void add_cause(struct line *line, uint32_t rank, const struct sc_cause *cause) {
    add(line, " %s", sc_status_name((sc_status)cause->code));
    if (cause->suspect != SC_RANK_NONE)
        add(line, " rank %" PRIu32, cause->suspect);
    if (cause->seq != 0)
        add(line, " seq %" PRIu64, cause->seq);
    if (cause->code == SC_MISMATCH) {
        int ours = rank == cause->suspect;
        add(line, " ours ");
        add_op(line, &cause->op[ours]);
        add(line, ", theirs ");
        add_op(line, &cause->op[!ours]);
    }
    if (cause->code == SC_CONFIG) {
        int here = rank != 0;
        add(line, " field %s: %" PRIu64 " here, %" PRIu64 " there",
            sc_config_field_name((enum sc_config_field)cause->field), cause->value[here],
            cause->value[!here]);
    }
    if (cause->code == SC_RECONNECT)
        add(line, " reason %" PRIu64, cause->value[0]);
}

// A notice names code and suspect; with the whole cause beside it the line says the rest.
static void add_why(struct line *line, const struct sc_trace_entry *entry) {
    const struct sc_action *notice = entry->notice;

    if (entry->cause != NULL) {
        add_cause(line, entry->rank, entry->cause);
        return;
    }
    add(line, " %s", sc_status_name((sc_status)notice->status));
    if (notice->rank != SC_RANK_NONE)
        add(line, " rank %" PRIu32, notice->rank);
}

static void add_state(struct line *line, const struct sc_trace_entry *entry) {
    const struct sc_action *notice = entry->notice;

    add(line, "%s -> %s", sc_state_name((enum sc_state)notice->a),
        sc_state_name((enum sc_state)notice->b));
    if (notice->status != SC_OK)
        add_why(line, entry);
}

// a is the coordinator's value, b the other rank's; what they mean depends on the code.
static void add_refused(struct line *line, const struct sc_trace_entry *entry) {
    const struct sc_action *notice = entry->notice;
    bool by_us = notice->rank != entry->rank;
    uint64_t here = by_us ? notice->a : notice->b;
    uint64_t there = by_us ? notice->b : notice->a;

    if (by_us) {
        add(line, "refuses rank %" PRIu32 " ", notice->rank);
    } else {
        add(line, "is refused ");
    }
    add(line, "%s: ", sc_status_name((sc_status)notice->status));
    if (notice->status == SC_DUP_RANK) {
        add(line, "incarnation %016" PRIx64 " here, %016" PRIx64 " there", here, there);
    } else if (notice->status == SC_FENCED && epoch_count(here) == epoch_count(there)) {
        add(line, "epoch %" PRIx64 " here, %" PRIx64 " there", here, there);
    } else if (notice->status == SC_FENCED) {
        add(line, "epoch %" PRIu64 " here, %" PRIu64 " there", epoch_count(here),
            epoch_count(there));
    } else if (notice->status == SC_STALE) {
        add(line, "hello %" PRIu64 " here, %" PRIu64 " there", here, there);
    } else if (notice->status == SC_CONFIG) {
        add(line, "%s %" PRIu64 " here, %" PRIu64 " there",
            sc_config_field_name((enum sc_config_field)notice->mask), here, there);
    } else {
        add(line, "it has failed itself");
    }
}

static void add_notice(struct line *line, const struct sc_trace_entry *entry) {
    const struct sc_action *notice = entry->notice;

    switch ((enum sc_notice)notice->kind) {
    case SC_NOTICE_STATE: add_state(line, entry); return;
    case SC_NOTICE_REFUSED: add_refused(line, entry); return;
    case SC_NOTICE_MISSING:
        add(line, "misses");
        add_ranks(line, notice->mask);
        return;
    case SC_NOTICE_AGREED: add(line, "agreed up to seq %" PRIu64, notice->a); return;
    case SC_NOTICE_BARRIER: add(line, "passes barrier %" PRIu64, notice->a); return;
    case SC_NOTICE_COMMAND_ROOM: add(line, "has room for a command again"); return;
    case SC_NOTICE_CAPTURES:
        add(line, "waits for %" PRIu64 " captures to be released", notice->a);
        return;
    case SC_NOTICE_GREETED: add(line, "greets rank %" PRIu32, notice->rank); return;
    case SC_NOTICE_BYE:
        add(line, "hears rank %" PRIu32 " leave: %s", notice->rank,
            sc_status_name((sc_status)notice->status));
        return;
    case SC_NOTICE_BREACH:
        add(line, "drops rank %" PRIu32 ": it broke the protocol", notice->rank);
        return;
    case SC_NOTICE_CAUSE:
        add(line, "knows why:");
        add_why(line, entry);
        return;
    }
    add(line, "notes something unknown (%" PRIu32 ")", notice->kind);
}

static void add_ready(struct line *line, const struct sc_trace_entry *entry) {
    const struct sc_recovery *recovery = entry->recovery;
    uint64_t fresh = 0, mark = 0, highest_ready = 0;

    for (uint32_t rank = 0; rank < recovery->world && rank < SC_WORLD_MAX; rank++) {
        const struct sc_rank_record *record = &recovery->ranks[rank];
        if (record->fresh && rank != entry->rank)
            fresh |= UINT64_C(1) << rank;
        if (record->mark > mark)
            mark = record->mark;
        if (record->ready_epoch > highest_ready)
            highest_ready = record->ready_epoch;
    }
    add(line, "ready epoch %" PRIu64, epoch_count(recovery->epoch));
    if (highest_ready == 0)
        return; // nobody was READY before: nothing to recover
    add(line, " recovery:");
    if (recovery->ranks[entry->rank].ready_epoch == 0) {
        add(line, " as a newcomer, mark %" PRIu64, mark);
        return;
    }
    add_ranks(line, fresh);
    add(line, "%s mark %" PRIu64, fresh != 0 ? " fresh," : "", mark);
}

static void add_duration(struct line *line, uint64_t ns) {
    add(line, "%" PRIu64 ".%03" PRIu64 " us", ns / 1000, ns % 1000);
}

bool sc_trace_line(const struct sc_trace_entry *entry, char *out, size_t bytes) {
    struct line line = {.out = out, .bytes = bytes};
    const char *text = entry->text != NULL ? entry->text : "";
    uint64_t epoch = epoch_count(entry->epoch);

    if (bytes == 0 || entry->kind == SC_TRACE_OP)
        return false;
    out[0] = '\0';
    if (entry->kind == SC_TRACE_VIOLATION || entry->kind == SC_TRACE_FAULT) {
        add(&line, "%s%s", entry->kind == SC_TRACE_FAULT ? "fault" : "violation",
            entry->rank != SC_RANK_NONE ? " " : "");
    }
    if (entry->rank != SC_RANK_NONE)
        add(&line, "rank %" PRIu32 "%s", entry->rank, entry->former ? " (former)" : "");
    switch (entry->kind) {
    case SC_TRACE_NOTICE:
        add(&line, " ");
        add_notice(&line, entry);
        break;
    case SC_TRACE_READY:
        add(&line, " ");
        add_ready(&line, entry);
        break;
    case SC_TRACE_FAULT: add(&line, " %s", text); break;
    case SC_TRACE_SPAWN:
        if (text[0] != '\0')
            add(&line, " cannot start: %s", text);
        else
            add(&line, " starts");
        break;
    case SC_TRACE_END: add(&line, " ends: %s", text); break;
    case SC_TRACE_STEP:
        add(&line, " mark %" PRIu64 " (%" PRIu64 " ops exact)", entry->a, entry->b);
        break;
    case SC_TRACE_FIRST_OP:
        add(&line, " first op of epoch %" PRIu64 " after ", epoch);
        add_duration(&line, entry->a);
        break;
    case SC_TRACE_VIOLATION: add(&line, ": %s", text); break;
    case SC_TRACE_MARK:
        add(&line, " mark %" PRIu64 " (%" PRIu64 " ops submitted)", entry->a, entry->b);
        break;
    case SC_TRACE_OP: break;
    }
    return true;
}

// ---- expected lines -----------------------------------------------------------------------------

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static const char *skip_blanks(const char *at) {
    while (is_blank(*at))
        at++;
    return at;
}

bool sc_trace_matches(const char *line, const char *expected) {
    line = skip_blanks(line);
    expected = skip_blanks(expected);
    while (*expected != '\0') {
        if (is_blank(*expected)) {
            expected = skip_blanks(expected);
            if (*expected == '\0')
                break;
            if (!is_blank(*line))
                return false;
            line = skip_blanks(line);
        } else if (*line++ != *expected++) {
            return false;
        }
    }
    return *line == '\0' || is_blank(*line) || *line == ':' || *line == ',';
}
