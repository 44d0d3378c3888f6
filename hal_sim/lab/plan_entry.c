// SPDX-License-Identifier: AGPL-3.0-only
//
// One entry of a plan, "TRIGGER: ACTION", both ways: read from words, and written so that reading it
// gives the same entry. Which words an action has is data; the grammar stands in plan_text.c.
#include "hal_sim/lab/plan_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MAX 1000000000u // of marks, calls and repetitions

// ---- the words of each action -------------------------------------------------------------------

struct verb_words {
    const char *name; // after "rank R"; NULL: no action of a rank
    bool lasts;       // a duration follows
    bool ours;        // only the lab's own application can do it
};

static const struct verb_words verbs[SC_PLAN_VERB_COUNT] = {
    [SC_PLAN_kill] = {"kill", false, false},
    [SC_PLAN_restart] = {"restart", false, false},
    [SC_PLAN_pause] = {"pause", true, false},
    [SC_PLAN_replace] = {"replace", true, false},
    [SC_PLAN_close_final] = {"close final", false, true},
    [SC_PLAN_close_returning] = {"close returning", true, true},
    [SC_PLAN_reconnect] = {"reconnect", false, true},
    [SC_PLAN_stall] = {"stall", true, false},
    [SC_PLAN_slow_kernel] = {"slow kernel", true, true},
};

// What follows a fault's name, in this order.
enum {
    RANK = 1,    // rank A
    PAIR = 2,    // A B
    ONE_WAY = 4, // A to B
    CALLS = 8,   // VERB nth N with STATUS [for ever]
    TIMES = 16,  // times N
    LASTS = 32,  // for DURATION
};

static const uint8_t fault_words[SC_SIM_FAULT_COUNT] = {
    [SC_SIM_link_reset] = PAIR,
    [SC_SIM_link_blackhole] = PAIR | LASTS,
    [SC_SIM_link_oneway] = ONE_WAY | LASTS,
    [SC_SIM_link_delay] = PAIR | LASTS,
    [SC_SIM_link_fragment] = PAIR | LASTS,
    [SC_SIM_name_unresolved] = RANK | LASTS,
    [SC_SIM_port_squatted] = LASTS,
    [SC_SIM_stranger_silent] = LASTS,
    [SC_SIM_stranger_garbage] = 0,
    [SC_SIM_stranger_http] = LASTS,
    [SC_SIM_stranger_banner] = 0,
    [SC_SIM_stranger_replay] = RANK,
    [SC_SIM_init_hang] = RANK,
    [SC_SIM_init_error] = RANK,
    [SC_SIM_init_null] = RANK,
    [SC_SIM_register_null] = RANK | TIMES,
    [SC_SIM_async_error] = RANK,
    [SC_SIM_op_slow] = RANK | LASTS,
    [SC_SIM_op_stuck] = RANK,
    [SC_SIM_op_late] = RANK | LASTS,
    [SC_SIM_abort_slow] = RANK | LASTS,
    [SC_SIM_abort_stuck] = RANK,
    [SC_SIM_verb_fails] = RANK | CALLS,
    [SC_SIM_context_lost] = RANK,
};

static const char *const device_verbs[SC_DEVICE_VERB_COUNT] = {
#define DEVICE_VERB_NAME(name) #name,
    SC_DEVICE_VERBS(DEVICE_VERB_NAME)
#undef DEVICE_VERB_NAME
};

const char *sc_plan_verb_name(enum sc_plan_verb verb) {
    static const char *const names[SC_PLAN_VERB_COUNT] = {
#define PLAN_VERB_NAME(name) #name,
        SC_PLAN_VERBS(PLAN_VERB_NAME)
#undef PLAN_VERB_NAME
    };
    return (unsigned)verb < SC_PLAN_VERB_COUNT ? names[verb] : "unknown";
}

// The rank that an action itself names; false when it names none.
static bool names_rank(const struct sc_plan_entry *entry, uint32_t *rank) {
    if (entry->verb != SC_PLAN_fault) {
        *rank = entry->rank;
        return entry->verb != SC_PLAN_heal;
    }
    *rank = entry->fault.a;
    return (fault_words[entry->fault.kind] & (RANK | PAIR | ONE_WAY)) != 0;
}

// ---- reading ------------------------------------------------------------------------------------

static bool take_rank(struct sc_plan_line *line, const struct sc_plan *plan, uint32_t *out) {
    uint64_t rank;

    if (!sc_plan_take_number(line, "the rank", 0, plan->core.world - 1u, &rank))
        return false;
    *out = (uint32_t)rank;
    return true;
}

static bool take_lasting(struct sc_plan_line *line, uint64_t *out_ns) {
    return sc_plan_take_duration(line, "the duration", 1, SC_PLAN_LONGEST_NS, out_ns);
}

static bool take_call(struct sc_plan_line *line, struct sc_sim_fault *fault) {
    struct sc_plan_guess guess = {0};
    uint64_t nth;
    uint32_t verb = 0, status = 0;

    while (verb < SC_DEVICE_VERB_COUNT && !sc_plan_take(line, device_verbs[verb]))
        sc_plan_guess(&guess, line, device_verbs[verb++]);
    if (verb == SC_DEVICE_VERB_COUNT)
        return sc_plan_refuse_unknown(line, "a device verb", &guess);
    if (!sc_plan_need(line, "nth") ||
        !sc_plan_take_number(line, "the number of the call", 1, COUNT_MAX, &nth) ||
        !sc_plan_need(line, "with"))
        return false;
    guess = (struct sc_plan_guess){0};
    for (status = SC_OK + 1; status < SC_STATUS_COUNT; status++) {
        if (sc_plan_take(line, sc_status_name((sc_status)status)))
            break;
        sc_plan_guess(&guess, line, sc_status_name((sc_status)status));
    }
    if (status == SC_STATUS_COUNT)
        return sc_plan_refuse_unknown(line, "a status that is an error", &guess);
    fault->verb = (enum sc_device_verb)verb;
    fault->nth = (uint32_t)nth;
    fault->status = (sc_status)status;
    fault->duration_ns = sc_plan_take(line, "for ever") ? SC_NEVER_NS : 0;
    return true;
}

static bool read_fault(struct sc_plan_line *line, const struct sc_plan *plan,
                       struct sc_sim_fault *fault) {
    uint8_t words = fault_words[fault->kind];
    uint64_t times;

    if ((words & RANK) && (!sc_plan_need(line, "rank") || !take_rank(line, plan, &fault->a)))
        return false;
    if ((words & (PAIR | ONE_WAY)) && !take_rank(line, plan, &fault->a))
        return false;
    if ((words & ONE_WAY) && !sc_plan_need(line, "to"))
        return false;
    if ((words & (PAIR | ONE_WAY)) && !take_rank(line, plan, &fault->b))
        return false;
    if ((words & (PAIR | ONE_WAY)) && fault->a == fault->b) {
        return sc_plan_refuse(line,
                              "the link is from rank %" PRIu32 " to itself, expected two "
                              "different ranks",
                              fault->a);
    }
    if ((words & CALLS) && !take_call(line, fault))
        return false;
    if (words & TIMES) {
        if (!sc_plan_need(line, "times") ||
            !sc_plan_take_number(line, "the number of times", 1, COUNT_MAX, &times))
            return false;
        fault->nth = (uint32_t)times;
    }
    return !(words & LASTS) ||
           (sc_plan_need(line, "for") && take_lasting(line, &fault->duration_ns));
}

static bool read_rank_action(struct sc_plan_line *line, const struct sc_plan *plan,
                             struct sc_plan_entry *out) {
    struct sc_plan_guess guess = {0};

    if (!take_rank(line, plan, &out->rank))
        return false;
    for (uint32_t verb = 0; verb < SC_PLAN_VERB_COUNT; verb++) {
        if (verbs[verb].name == NULL)
            continue;
        if (sc_plan_take(line, verbs[verb].name)) {
            if (verbs[verb].ours && plan->guest)
                return sc_plan_refuse_ours(line, verbs[verb].name);
            out->verb = (enum sc_plan_verb)verb;
            return !verbs[verb].lasts || take_lasting(line, &out->duration_ns);
        }
        sc_plan_guess(&guess, line, verbs[verb].name);
    }
    return sc_plan_refuse_unknown(line, "an action of a rank", &guess);
}

static bool read_action(struct sc_plan_line *line, const struct sc_plan *plan,
                        struct sc_plan_entry *out) {
    struct sc_plan_guess guess = {0};

    if (sc_plan_take(line, "rank"))
        return read_rank_action(line, plan, out);
    if (sc_plan_take(line, "heal")) {
        out->verb = SC_PLAN_heal;
        return true;
    }
    out->verb = SC_PLAN_fault;
    for (uint32_t kind = 0; kind < SC_SIM_FAULT_COUNT; kind++) {
        const char *name = sc_sim_fault_name((enum sc_sim_fault_kind)kind);
        if (sc_plan_take(line, name)) {
            out->fault.kind = (enum sc_sim_fault_kind)kind;
            return read_fault(line, plan, &out->fault);
        }
        sc_plan_guess(&guess, line, name);
    }
    sc_plan_guess(&guess, line, "rank");
    sc_plan_guess(&guess, line, "heal");
    return sc_plan_refuse_unknown(line, "an action", &guess);
}

// A trigger that watches a rank's work; it may leave that rank to the action.
static bool read_watch(struct sc_plan_line *line, const struct sc_plan *plan,
                       struct sc_plan_entry *out) {
    // A step that is a graph is one launch: only its beginning is submitted.
    uint64_t layers = line->layers_max != 0 ? line->layers_max : plan->work.layers;
    uint64_t ops = plan->work.graph ? 1 : layers;

    if (sc_plan_take(line, "rank") && !take_rank(line, plan, &out->at_rank))
        return false;
    if (sc_plan_take(line, "op")) {
        out->trigger = SC_PLAN_AT_OP;
        if (!sc_plan_take_number(line, "the op", 1, ops, &out->op) || !sc_plan_need(line, "of"))
            return false;
    } else {
        out->trigger = SC_PLAN_AT_MARK;
    }
    if (!sc_plan_need(line, "mark") ||
        !sc_plan_take_number(line, "the mark", 1, COUNT_MAX, &out->mark))
        return false;
    if (out->trigger == SC_PLAN_AT_OP)
        out->mark--; // the step that becomes mark M comes after mark M - 1
    return true;
}

static bool read_trigger(struct sc_plan_line *line, const struct sc_plan *plan,
                         struct sc_plan_entry *out) {
    const char *next;

    if (sc_plan_take(line, "after")) {
        if (plan->entries_count == 0) {
            return sc_plan_refuse(line, "\"after\" counts from the entry above it, and there is "
                                        "none; expected \"at\"");
        }
        out->trigger = SC_PLAN_AFTER;
        return sc_plan_take_duration(line, "the delay", 0, SC_PLAN_LONGEST_NS, &out->time_ns);
    }
    if (!sc_plan_need(line, "at"))
        return false;
    next = line->words[line->at];
    if (next != NULL && strchr("rom", next[0]) != NULL)
        return read_watch(line, plan, out);
    out->trigger = SC_PLAN_AT_TIME;
    return sc_plan_take_duration(line, "the time", 0, SC_PLAN_LONGEST_NS, &out->time_ns);
}

bool sc_plan_read_entry(struct sc_plan_line *line, const struct sc_plan *plan,
                        struct sc_plan_entry *out) {
    struct sc_plan_entry entry = {.at_rank = SC_RANK_NONE};
    uint32_t named = 0;

    if (!read_trigger(line, plan, &entry) || !sc_plan_need(line, ":") ||
        !read_action(line, plan, &entry) || !sc_plan_need_end(line))
        return false;
    bool has_rank = names_rank(&entry, &named);
    bool watches = entry.trigger == SC_PLAN_AT_OP || entry.trigger == SC_PLAN_AT_MARK;
    if (watches && entry.at_rank == SC_RANK_NONE && !has_rank) {
        return sc_plan_refuse(line, "whose op or mark is meant? The action names no rank, expected "
                                    "\"at rank R\"");
    }
    if (entry.at_rank == SC_RANK_NONE)
        entry.at_rank = watches ? named : 0;
    *out = entry;
    return true;
}

// ---- writing ------------------------------------------------------------------------------------

struct text {
    char *out;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...) {
    size_t room = text->used < text->bytes ? text->bytes - text->used : 0;
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(room > 0 ? text->out + text->used : NULL, room, format, arguments);
    va_end(arguments);
    text->used += length > 0 ? (size_t)length : 0;
}

static void add_duration(struct text *text, const char *before, uint64_t ns) {
    char duration[SC_PLAN_DURATION_BYTES];

    sc_plan_duration_text(ns, duration);
    add(text, "%s %s", before, duration);
}

static void add_trigger(struct text *text, const struct sc_plan_entry *entry) {
    uint32_t named;

    if (entry->trigger == SC_PLAN_AT_TIME || entry->trigger == SC_PLAN_AFTER) {
        add_duration(text, entry->trigger == SC_PLAN_AFTER ? "after" : "at", entry->time_ns);
        return;
    }
    add(text, "at ");
    if (!names_rank(entry, &named) || named != entry->at_rank)
        add(text, "rank %" PRIu32 " ", entry->at_rank);
    if (entry->trigger == SC_PLAN_AT_OP) {
        add(text, "op %" PRIu64 " of mark %" PRIu64, entry->op, entry->mark + 1);
    } else {
        add(text, "mark %" PRIu64, entry->mark);
    }
}

static void add_fault(struct text *text, const struct sc_sim_fault *fault) {
    uint8_t words = fault_words[fault->kind];

    add(text, "%s", sc_sim_fault_name(fault->kind));
    if (words & RANK)
        add(text, " rank %" PRIu32, fault->a);
    if (words & (PAIR | ONE_WAY))
        add(text, " %" PRIu32 "%s %" PRIu32, fault->a, words & ONE_WAY ? " to" : "", fault->b);
    if (words & CALLS) {
        add(text, " %s nth %" PRIu32 " with %s%s", device_verbs[fault->verb], fault->nth,
            sc_status_name(fault->status), fault->duration_ns > 0 ? " for ever" : "");
    }
    if (words & TIMES)
        add(text, " times %" PRIu32, fault->nth);
    if (words & LASTS)
        add_duration(text, " for", fault->duration_ns);
}

bool sc_plan_entry_text(const struct sc_plan_entry *entry, char *out, size_t bytes) {
    struct text text = {.out = out, .bytes = bytes};

    if ((unsigned)entry->verb >= SC_PLAN_VERB_COUNT || (unsigned)entry->trigger > SC_PLAN_AFTER ||
        (unsigned)entry->fault.kind >= SC_SIM_FAULT_COUNT ||
        (unsigned)entry->fault.verb >= SC_DEVICE_VERB_COUNT)
        return false;
    add_trigger(&text, entry);
    add(&text, ": ");
    if (entry->verb == SC_PLAN_fault) {
        add_fault(&text, &entry->fault);
    } else if (entry->verb == SC_PLAN_heal) {
        add(&text, "heal");
    } else {
        add(&text, "rank %" PRIu32 " %s", entry->rank, verbs[entry->verb].name);
        if (verbs[entry->verb].lasts)
            add_duration(&text, "", entry->duration_ns);
    }
    return text.used < bytes;
}
