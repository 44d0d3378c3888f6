// SPDX-License-Identifier: AGPL-3.0-only
//
// See api_run.h.
#include "tests/support/api_run.h"

#include <inttypes.h>
#include <stdlib.h>

#define TRACE_BYTES 65536u
#define FAILED_EXIT 1

uint64_t board[32];

static struct {
    const struct api_run *run;
    char failure[1600]; // of the first expectation that failed
    char trace[TRACE_BYTES];
    size_t trace_used;
} played;

// ---- expectations ------------------------------------------------------------------------------

static void out(struct api_rank *me, int why) __attribute__((noreturn));

static void out(struct api_rank *me, int why) {
    longjmp(me->out, why);
}

static void fails(struct api_rank *me, const char *file, int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

static void fails(struct api_rank *me, const char *file, int line, const char *format, ...) {
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (played.failure[0] == '\0')
        snprintf(played.failure, sizeof played.failure, "%s:%d: rank %u, life %u, at %.6f s: %s",
                 file, line, me->rank, me->life, (double)api_now(me) / (double)SECOND, text);
    out(me, 2);
}

void api_expect(struct api_rank *me, sc_status status, sc_status wanted, const char *call,
                const char *file, int line) {
    if (status == SC_SIM_KILLED)
        out(me, 1);
    if (status != wanted)
        fails(me, file, line, "%s answers %s, not %s; last error: %s", call, sc_status_name(status),
              sc_status_name(wanted), sc_last_error());
}

void api_true(struct api_rank *me, bool holds, const char *what, const char *file, int line) {
    if (!holds)
        fails(me, file, line, "not so: %s", what);
}

void api_equal(struct api_rank *me, uint64_t value, uint64_t wanted, const char *what,
               const char *file, int line) {
    if (value != wanted)
        fails(me, file, line, "%s is %" PRIu64 " (%#" PRIx64 "), not %" PRIu64 " (%#" PRIx64 ")",
              what, value, value, wanted, wanted);
}

void api_says(struct api_rank *me, const char *text, const char *words, const char *file,
              int line) {
    if (strstr(text, words) == NULL)
        fails(me, file, line, "no '%s' in: %s", words, text);
}

// ---- runs --------------------------------------------------------------------------------------

static int guarded(struct api_rank *me, api_script *script) {
    int why = setjmp(me->out);
    if (why != 0)
        return FAILED_EXIT;
    script(me);
    return 0;
}

static int rank_main(struct sc_sim_rank *sim, void *arg) {
    const struct api_run *run = arg;
    struct api_rank *me = calloc(1, sizeof *me);
    if (me == NULL)
        return FAILED_EXIT;
    struct sc_config config;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(sim, &config);
    me->sim = sim;
    me->rank = sc_sim_rank_number(sim);
    me->life = sc_sim_rank_life(sim);
    me->world = config.world;
    api_script *own = run->scripts[me->rank];
    int code = guarded(me, own != NULL ? own : run->script);
    free(me);
    return code;
}

static void on_trace(void *arg, const char *line) {
    (void)arg;
    size_t room = sizeof played.trace - played.trace_used;
    int length = snprintf(played.trace + played.trace_used, room, "  %s\n", line);
    if (length > 0 && (size_t)length < room)
        played.trace_used += (size_t)length;
}

static void report_failure(const struct sc_sim_options *options, const char *what) {
    fprintf(stderr, "%s\nseed %" PRIu64 ", plan:\n%s\ntrace:\n%s", what, options->seed,
            options->plan != NULL ? options->plan : "", played.trace);
    fail();
}

static struct sc_sim_report play_once(const struct api_run *run) {
    struct sc_sim_report report = {.size = sizeof report};
    struct sc_sim_options options;
    char text[160];
    sc_sim_options_init(&options, sizeof options);
    options.seed = run->seed != 0 ? run->seed : 1;
    options.plan = run->plan;
    options.on_trace = on_trace;
    memset(board, 0, sizeof board);
    played.failure[0] = played.trace[0] = '\0';
    played.trace_used = 0;
    played.run = run;
    sc_status status = sc_sim_run(&options, rank_main, (void *)(uintptr_t)run, &report);
    if (status != SC_OK)
        report_failure(&options, sc_last_error());
    if (played.failure[0] != '\0')
        report_failure(&options, played.failure);
    if (report.violations != 0)
        report_failure(&options, report.violation);
    for (uint32_t r = 0; r < report.ranks; r++) {
        int32_t wanted = run->killed[r] ? -1 : 0;
        snprintf(text, sizeof text, "rank %u ended with %d, not %d", r, report.exit_code[r],
                 wanted);
        if (report.exit_code[r] != wanted)
            report_failure(&options, text);
    }
    return report;
}

struct sc_sim_report api_play_run(const struct api_run *run) {
    struct sc_sim_report first = play_once(run), second = play_once(run);
    assert_int_equal(first.hash, second.hash);
    assert_int_equal(first.ended_ns, second.ended_ns);
    return second;
}

struct sc_sim_report api_play(const char *plan, api_script *script) {
    return api_play_run(&(struct api_run){.plan = plan, .script = script});
}

// ---- what scripts do ---------------------------------------------------------------------------

static void on_note(void *arg, const struct sc_note *note) {
    struct api_rank *me = arg;
    if (me->notes_count == API_NOTES)
        return;
    struct api_note *kept = &me->notes[me->notes_count++];
    kept->note = *note;
    snprintf(kept->text, sizeof kept->text, "%s", note->text);
    kept->note.text = kept->text;
}

struct sc_config api_config(struct api_rank *me) {
    struct sc_config config;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(me->sim, &config);
    config.capacity_bytes = API_CAPACITY;
    config.on_note = on_note;
    config.arg = me;
    if (played.run->configure != NULL)
        played.run->configure(&config);
    return config;
}

void api_open(struct api_rank *me, const struct sc_config *config) {
    const struct sc_config own = api_config(me);
    DO(me, sc_open(config != NULL ? config : &own, &me->comm));
    if (me->stream == NULL)
        me->stream = api_stream(me);
}

void api_ready(struct api_rank *me) {
    uint64_t before = me->epoch;
    me->recovery = (struct sc_recovery){.size = sizeof me->recovery};
    DO(me, sc_wait_ready(me->comm, 60 * SECOND, &me->recovery));
    me->epoch = me->recovery.epoch;
    TRUE(me, me->epoch >= before);
    me->recoveries += before != 0 && me->epoch != before;
}

void api_begin(struct api_rank *me) {
    api_open(me, NULL);
    api_ready(me);
}

void api_close(struct api_rank *me, enum sc_close_how how) {
    DO(me, sc_close(me->comm, how, 30 * SECOND));
}

void api_leave(struct api_rank *me) {
    DO(me, sc_barrier(me->comm, me->epoch, 60 * SECOND));
    api_close(me, SC_CLOSE_FINAL);
}

void api_sleep(struct api_rank *me, uint64_t duration_ns) {
    DO(me, sc_sim_rank_sleep(me->sim, duration_ns));
}

uint64_t api_now(const struct api_rank *me) {
    return sc_sim_rank_now_ns(me->sim);
}

struct sc_health_report api_health(struct api_rank *me) {
    struct sc_health_report report = {.size = sizeof report};
    DO(me, sc_health(me->comm, &report));
    return report;
}

void *api_stream(struct api_rank *me) {
    void *stream = NULL;
    DO(me, sc_sim_rank_stream_create(me->sim, &stream));
    return stream;
}

const struct api_note *api_note(const struct api_rank *me, enum sc_note_kind kind) {
    for (uint32_t i = me->notes_count; i-- > 0;)
        if (me->notes[i].note.kind == kind)
            return &me->notes[i];
    return NULL;
}

uint32_t api_notes(const struct api_rank *me, enum sc_note_kind kind) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < me->notes_count; i++)
        count += me->notes[i].note.kind == kind;
    return count;
}

// ---- payloads ----------------------------------------------------------------------------------

uint16_t api_bf16(uint32_t value) {
    float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)(bits >> 16);
}

uint16_t *api_memory(struct api_rank *me, const void *buffer, uint64_t bytes) {
    uint16_t *memory = sc_sim_rank_memory(me->sim, buffer, bytes);
    TRUE(me, memory != NULL);
    return memory;
}

void api_fill(struct api_rank *me, void *buffer, uint32_t elements, uint32_t value) {
    uint16_t *memory = api_memory(me, buffer, elements * sizeof *memory);
    for (uint32_t i = 0; i < elements; i++)
        memory[i] = api_bf16(value);
}

uint16_t *api_buffer(struct api_rank *me, uint32_t elements, uint32_t value) {
    void *buffer = NULL;
    DO(me, sc_sim_rank_alloc(me->sim, elements * sizeof(uint16_t), &buffer));
    api_fill(me, buffer, elements, value);
    return buffer;
}

void api_holds(struct api_rank *me, const void *buffer, uint32_t elements, uint32_t value,
               const char *what, const char *file, int line) {
    const uint16_t *memory = api_memory(me, buffer, elements * sizeof *memory);
    for (uint32_t i = 0; i < elements; i++)
        if (memory[i] != api_bf16(value))
            fails(me, file, line, "element %u of %s is %#x, not %#x (%u)", i, what, memory[i],
                  api_bf16(value), value);
}

void api_works(struct api_rank *me) {
    uint16_t *buffer = api_buffer(me, 64, 1);
    DO(me, sc_all_reduce(me->comm, me->epoch, buffer, 128, SC_BF16, me->stream));
    DO(me, sc_sync(me->comm, me->epoch, me->stream, SC_SYNC_AGREED, 30 * SECOND));
    HOLDS(me, buffer, 64, me->world);
    DO(me, sc_sim_rank_free(me->sim, buffer));
}
