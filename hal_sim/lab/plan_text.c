// SPDX-License-Identifier: AGPL-3.0-only
//
// Plans as text: one statement a line, "#" begins a comment. Settings come first, then what goes
// wrong, then what the trace must hold. All that is left out stays as sc_plan_init set it.
//
//   ranks N   seed N   steps N                     steps: the run ends when all have committed N
//   seconds S   quiet AT                           quiet: nothing goes wrong from then on; 3/4 of S
//   layers N   elements N   streams 1|2            the work of a step; layers: unless given, enough
//                                                  for every op that an entry names
//   gap DUR   compute DUR   sync every N   mixed
//   graph                                          each step is a graph, on one stream
//   respawn DUR DUR   respawn never                how fast a supervisor starts a rank again
//   free end                                       ranks need not be READY and working at the end
//   heartbeat DUR   silence DUR   op limit DUR   behind limit DUR   init limit DUR
//   abort limit DUR   stable DUR   join limit DUR
//   link latency DUR DUR   init takes DUR DUR   warmup takes DUR DUR   abort takes DUR DUR
//   op takes DUR DUR                               from the shortest to the longest
//
//   TRIGGER: ACTION
//     at DUR                     this long after the run's begin
//     after DUR                  this long after the entry above has struck
//     at [rank R] op N of mark M just before R submits op N, from 1, of the step that is to become
//                                mark M
//     at [rank R] mark M         when R has committed M; R is the action's rank unless given
//
//     rank R kill | restart | reconnect | pause DUR | replace DUR | stall DUR |
//                slow kernel DUR
//     rank R close final         rank R close returning DUR
//     heal                       every fault is lifted
//     link_reset A B             link_blackhole, link_delay, link_fragment A B for DUR
//     link_oneway A to B for DUR
//     name_unresolved rank R for DUR
//     port_squatted, stranger_silent, stranger_http for DUR
//     stranger_garbage           stranger_banner            stranger_replay rank R
//     init_hang, init_error, init_null, async_error, op_stuck, abort_stuck, context_lost rank R
//     op_slow, op_late, abort_slow rank R for DUR
//     register_null rank R times N
//     verb_fails rank R VERB nth N with STATUS [for ever]
//
//   expect                       the lines below it, to the end of the text, must appear in the
//     LINE                       trace, in this order
//
// A plan for somebody else's application (plan.guest) knows no steps, layers, elements, streams, gap,
// compute, sync, mixed, graph, free end, stable, close, reconnect, slow kernel and expect; op N of
// mark M is there the Nth submit since mark M - 1.
//
// A DUR is a number with its unit: 300ms, 1.5s. In a name of several words blank, "_" and "-" are
// alike.
#include "hal_sim/lab/inside.h"
#include "hal_sim/lab/plan_words.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ELEMENTS_MAX (1u << 20)
#define PAYLOADS_BYTES_MAX (UINT64_C(64) << 20) // of all layers, for one rank
#define SECONDS_MAX 86400u
// However fast the work is, virtual time moves on.
#define GAP_MIN_NS 1000u
#define RESPAWN_MIN_NS 1000000u
#define COUNT_MAX 1000000000u

struct reader {
    struct sc_plan_line line;
    struct sc_plan *plan;
    bool settled; // the settings are over
    bool expecting;
};

// ---- settings -----------------------------------------------------------------------------------

struct setting {
    const char *name;
    bool (*read)(struct reader *reader, const struct setting *setting);
    size_t offset; // within the plan
    uint64_t min, max;
    bool ours; // only for the lab's own runs
};

static void *place_of(struct reader *reader, const struct setting *setting) {
    return (unsigned char *)reader->plan + setting->offset;
}

static bool read_u32(struct reader *reader, const struct setting *setting) {
    uint64_t value;

    if (!sc_plan_take_number(&reader->line, setting->name, setting->min, setting->max, &value))
        return false;
    *(uint32_t *)place_of(reader, setting) = (uint32_t)value;
    return true;
}

static bool read_u64(struct reader *reader, const struct setting *setting) {
    return sc_plan_take_number(&reader->line, setting->name, setting->min, setting->max,
                               place_of(reader, setting));
}

static bool read_duration(struct reader *reader, const struct setting *setting) {
    return sc_plan_take_duration(&reader->line, setting->name, setting->min, setting->max,
                                 place_of(reader, setting));
}

static bool read_span(struct reader *reader, const struct setting *setting) {
    struct sc_sim_span *span = place_of(reader, setting);

    return sc_plan_take_duration(&reader->line, "the shortest", setting->min, setting->max,
                                 &span->min_ns) &&
           sc_plan_take_duration(&reader->line, "the longest", span->min_ns, setting->max,
                                 &span->max_ns);
}

static bool read_flag(struct reader *reader, const struct setting *setting) {
    *(bool *)place_of(reader, setting) = true;
    return true;
}

static bool read_ranks(struct reader *reader, const struct setting *setting) {
    if (!read_u32(reader, setting))
        return false;
    reader->plan->sim.world = reader->plan->core.world;
    return true;
}

static bool read_layers(struct reader *reader, const struct setting *setting) {
    reader->line.layers_max = 0;
    return read_u32(reader, setting);
}

static bool read_seconds(struct reader *reader, const struct setting *setting) {
    struct sc_plan *plan = reader->plan;
    uint64_t seconds;

    if (!sc_plan_take_number(&reader->line, setting->name, setting->min, setting->max, &seconds))
        return false;
    plan->duration_ns = seconds * 1000000000;
    plan->quiet_ns = plan->duration_ns / 4 * 3;
    return true;
}

static bool read_respawn(struct reader *reader, const struct setting *setting) {
    struct sc_plan *plan = reader->plan;

    if (sc_plan_take(&reader->line, "never")) {
        plan->respawn_min_ns = plan->respawn_max_ns = 0;
        return true;
    }
    return sc_plan_take_duration(&reader->line, "the shortest", setting->min, setting->max,
                                 &plan->respawn_min_ns) &&
           sc_plan_take_duration(&reader->line, "the longest", plan->respawn_min_ns, setting->max,
                                 &plan->respawn_max_ns);
}

#define AT(member) offsetof(struct sc_plan, member)
static const struct setting settings[] = {
    {"ranks", read_ranks, AT(core.world), 1, LAB_RANKS_MAX, false},
    {"seed", read_u64, AT(sim.seed), 0, UINT64_MAX, false},
    {"steps", read_u64, AT(work.steps_max), 1, COUNT_MAX, true},
    {"seconds", read_seconds, 0, 1, SECONDS_MAX, false},
    {"quiet", read_duration, AT(quiet_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"layers", read_layers, AT(work.layers), 1, LAB_LAYERS_MAX, true},
    {"elements", read_u32, AT(work.elements), 1, ELEMENTS_MAX, true},
    {"streams", read_u32, AT(work.streams), 1, 2, true},
    {"gap", read_duration, AT(work.gap_ns), GAP_MIN_NS, SC_PLAN_LONGEST_NS, true},
    {"compute", read_duration, AT(work.compute_ns), 0, SC_PLAN_LONGEST_NS, true},
    {"sync every", read_u32, AT(work.sync_every), 1, COUNT_MAX, true},
    {"graph", read_flag, AT(work.graph), 0, 0, true},
    {"mixed", read_flag, AT(work.mixed), 0, 0, true},
    {"respawn", read_respawn, 0, RESPAWN_MIN_NS, SC_PLAN_LONGEST_NS, false},
    {"free end", read_flag, AT(free_end), 0, 0, true},
    {"heartbeat", read_duration, AT(core.timing.heartbeat_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"silence", read_duration, AT(core.timing.silence_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"op limit", read_duration, AT(core.timing.op_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"behind limit", read_duration, AT(core.timing.behind_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"init limit", read_duration, AT(core.timing.init_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"abort limit", read_duration, AT(core.timing.abort_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"stable", read_duration, AT(core.stable_ns), 0, SC_PLAN_LONGEST_NS, true},
    {"join limit", read_duration, AT(core.join_ns), 0, SC_PLAN_LONGEST_NS, false},
    {"link latency", read_span, AT(sim.link_latency), 0, SC_PLAN_LONGEST_NS, false},
    {"init takes", read_span, AT(sim.comm_init), 0, SC_PLAN_LONGEST_NS, false},
    {"warmup takes", read_span, AT(sim.comm_warmup), 0, SC_PLAN_LONGEST_NS, false},
    {"abort takes", read_span, AT(sim.comm_abort), 0, SC_PLAN_LONGEST_NS, false},
    {"op takes", read_span, AT(sim.op_latency), 0, SC_PLAN_LONGEST_NS, false},
};
#undef AT

static bool read_setting(struct reader *reader) {
    struct sc_plan_line *line = &reader->line;
    struct sc_plan_guess guess = {0};

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (sc_plan_take(line, settings[i].name)) {
            if (reader->settled) {
                return sc_plan_refuse(line,
                                      "\"%s\" stands below an entry, expected settings "
                                      "above all entries",
                                      settings[i].name);
            }
            if (settings[i].ours && reader->plan->guest)
                return sc_plan_refuse_ours(line, settings[i].name);
            return settings[i].read(reader, &settings[i]) && sc_plan_need_end(line);
        }
        sc_plan_guess(&guess, line, settings[i].name);
    }
    sc_plan_guess(&guess, line, "at");
    sc_plan_guess(&guess, line, "after");
    sc_plan_guess(&guess, line, "expect");
    return sc_plan_refuse_unknown(line, "a statement", &guess);
}

static bool check_memory(struct reader *reader) {
    const struct sc_workload *work = &reader->plan->work;
    uint64_t bytes =
        (uint64_t)work->elements * SC_BF16_BYTES * work->layers * reader->plan->core.world;

    if (bytes <= PAYLOADS_BYTES_MAX)
        return true;
    return sc_plan_refuse(&reader->line,
                          "layers x elements x ranks takes %" PRIu64
                          " bytes, expected at most %" PRIu64,
                          bytes, PAYLOADS_BYTES_MAX);
}

static bool check_quiet(struct reader *reader) {
    const struct sc_plan *plan = reader->plan;
    char quiet[SC_PLAN_DURATION_BYTES], duration[SC_PLAN_DURATION_BYTES];

    if (plan->quiet_ns <= plan->duration_ns)
        return true;
    sc_plan_duration_text(plan->quiet_ns, quiet);
    sc_plan_duration_text(plan->duration_ns, duration);
    return sc_plan_refuse(&reader->line, "quiet is %s, expected at most the run's %s", quiet,
                          duration);
}

// What only all settings together can show.
static bool settle(struct reader *reader) {
    struct sc_core_config *core = &reader->plan->core;
    uint64_t payload_bytes = (uint64_t)core->world * reader->plan->work.elements * SC_BF16_BYTES;
    struct sc_config_fault fault;

    if (reader->settled)
        return true;
    reader->settled = true;
    if (core->capacity_bytes < payload_bytes)
        core->capacity_bytes = payload_bytes;
    if (!check_memory(reader) || !check_quiet(reader))
        return false;
    if (reader->plan->work.graph && reader->plan->work.streams != 1)
        return sc_plan_refuse(&reader->line, "a graph is of one stream, but streams is 2");
    core->rank = 0;
    if (sc_core_config_check(core, &fault) != SC_OK)
        return sc_plan_refuse(&reader->line,
                              "the settings above make %s %llu, expected %llu to %llu", fault.field,
                              (unsigned long long)fault.value, (unsigned long long)fault.min,
                              (unsigned long long)fault.max);
    return true;
}

// ---- entries and expectations -------------------------------------------------------------------

static bool check_time(struct reader *reader, const struct sc_plan_entry *entry) {
    const struct sc_plan *plan = reader->plan;
    uint64_t end_ns = entry->verb == SC_PLAN_restart ? plan->duration_ns : plan->quiet_ns;
    char at[SC_PLAN_DURATION_BYTES], end[SC_PLAN_DURATION_BYTES];

    if (entry->trigger != SC_PLAN_AT_TIME || entry->time_ns < end_ns)
        return true;
    sc_plan_duration_text(entry->time_ns, at);
    sc_plan_duration_text(end_ns, end);
    return sc_plan_refuse(
        &reader->line, "the time is %s, expected one before %s: from then on %s", at, end,
        entry->verb == SC_PLAN_restart ? "the run is over" : "nothing goes wrong (quiet)");
}

static bool read_entry(struct reader *reader) {
    struct sc_plan *plan = reader->plan;

    if (plan->entries_count == SC_PLAN_ENTRIES_MAX) {
        return sc_plan_refuse(&reader->line, "one entry too many, expected at most %u",
                              SC_PLAN_ENTRIES_MAX);
    }
    struct sc_plan_entry *entry = &plan->entries[plan->entries_count];
    if (!sc_plan_read_entry(&reader->line, plan, entry) || !check_time(reader, entry))
        return false;
    if (entry->op > plan->work.layers && !plan->guest)
        plan->work.layers = (uint32_t)entry->op;
    plan->entries_count++;
    return check_memory(reader);
}

static bool read_expectation(struct reader *reader, const char *text, size_t bytes) {
    struct sc_plan *plan = reader->plan;

    while (bytes > 0 && strchr(" \t\r", text[bytes - 1]) != NULL)
        bytes--;
    for (; bytes > 0 && strchr(" \t\r", *text) != NULL; bytes--)
        text++;
    if (bytes == 0)
        return true;
    if (bytes >= SC_PLAN_LINE_BYTES) {
        return sc_plan_refuse(&reader->line, "the expected line has %zu bytes, expected at most %u",
                              bytes, SC_PLAN_LINE_BYTES - 1u);
    }
    if (plan->expect_count == SC_PLAN_EXPECT_MAX) {
        return sc_plan_refuse(&reader->line, "one expected line too many, expected at most %u",
                              SC_PLAN_EXPECT_MAX);
    }
    char *line = plan->expect[plan->expect_count++];
    memcpy(line, text, bytes);
    line[bytes] = '\0';
    return true;
}

static bool read_line(struct reader *reader, const char *text, size_t bytes) {
    struct sc_plan_line *line = &reader->line;

    if (reader->expecting)
        return read_expectation(reader, text, bytes);
    if (!sc_plan_cut(line, text, bytes))
        return false;
    if (line->words[0] == NULL)
        return true;
    if (sc_plan_take(line, "expect")) {
        if (reader->plan->guest)
            return sc_plan_refuse_ours(line, "expect");
        reader->expecting = true;
        return sc_plan_need_end(line) && settle(reader);
    }
    if (strcmp(line->words[0], "at") == 0 || strcmp(line->words[0], "after") == 0)
        return settle(reader) && read_entry(reader);
    return read_setting(reader);
}

sc_status sc_plan_parse(struct sc_plan *plan, const char *name, const char *text, char *why,
                        size_t why_bytes) {
    struct sc_plan draft = *plan;
    struct reader reader = {
        .line = {.name = name,
                 .why = why,
                 .why_bytes = why_bytes,
                 .layers_max = plan->guest ? COUNT_MAX : LAB_LAYERS_MAX},
        .plan = &draft,
    };

    draft.entries_count = draft.expect_count = 0;
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        const char *comment = memchr(text, '#', bytes);
        size_t kept = comment != NULL ? (size_t)(comment - text) : bytes;

        reader.line.number++;
        if (!read_line(&reader, text, kept))
            return SC_INVALID;
        text += bytes + (text[bytes] == '\n');
    }
    if (!settle(&reader))
        return SC_INVALID;
    *plan = draft;
    return SC_OK;
}
