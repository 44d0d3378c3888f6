// SPDX-License-Identifier: AGPL-3.0-only
//
// What an engine does, in small: steps of a few collectives, eager or as a graph, each result
// compared bit for bit; after a loss it takes the recovery record and redoes from the lowest mark.
#include "hal_sim/lab/inside.h"
#include "hal_sim/lab/payload.h"

#include <string.h>

#define RELEASE_MAX_NS 20000000ull // an application lets go of a useless capture within 20 ms

static const struct sc_device *device_of(const struct life *life) {
    return sc_hal_check_device(life->check);
}

static struct sc_payload payload_of(const struct life *life, uint32_t layer) {
    const struct lab *lab = life->seat->lab;
    return (struct sc_payload){
        .seed = lab->plan->sim.seed,
        .epoch = life->app.epoch,
        .step = life->app.step,
        .layer = layer,
        .rank = life->seat->rank,
        .world = lab->plan->core.world,
        .elements = lab->plan->work.elements,
        .mixed = lab->plan->work.mixed,
        .fixed = lab->plan->work.graph,
    };
}

static uint64_t layer_address(const struct life *life, uint32_t layer) {
    const struct sc_plan *plan = life->seat->lab->plan;
    return life->app.memory +
           (uint64_t)layer * plan->core.world * plan->work.elements * SC_BF16_BYTES;
}

sc_status app_open(struct life *life) {
    const struct sc_plan *plan = life->seat->lab->plan;
    const struct sc_device *d = device_of(life);
    uint64_t bytes = (uint64_t)plan->work.layers * plan->core.world * plan->work.elements *
                     SC_BF16_BYTES;
    for (uint32_t i = 0; i < plan->work.streams; i++)
        if (d->stream_create(d->ctx, &life->app.streams[i]) != SC_OK)
            return SC_DEVICE_ERROR;
    sc_status status = d->mem_alloc(d->ctx, bytes, &life->app.memory);
    if (status != SC_OK)
        return status;
    return sc_pump_register(life->pump, life->app.memory, bytes);
}

static void release_capture(struct life *life) {
    if (sc_pump_capture_release(life->pump, life->app.capture) == SC_OK)
        life->app.capture = 0;
    else
        life->app.release_at_ns += RELEASE_MAX_NS;
}

void app_close(struct life *life) {
    const struct sc_device *d = device_of(life);
    struct app *app = &life->app;
    if (app->capture != 0)
        release_capture(life);
    if (sc_pump_deregister(life->pump, app->memory) != SC_OK)
        lab_violation(life->seat->lab, life->seat->rank, "a registered buffer was forgotten");
    (void)d->mem_free(d->ctx, app->memory);
    for (uint32_t i = 0; i < life->seat->lab->plan->work.streams; i++)
        (void)d->stream_destroy(d->ctx, app->streams[i]);
}

static void fill(struct life *life, uint32_t layer) {
    const struct sc_payload payload = payload_of(life, layer);
    uint64_t bytes = (uint64_t)payload.world * payload.elements * SC_BF16_BYTES;
    void *memory = sc_sim_memory(life->process, layer_address(life, layer), bytes);
    if (memory != NULL)
        sc_payload_fill(&payload, memory);
}

// ---- completions ----

void app_completed(struct life *life, uint64_t epoch, uint64_t number, uint64_t seq) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (epoch != app->epoch || app->phase != APP_RUNNING) {
        lab_violation(lab, life->seat->rank, "O1 op %llu of epoch %llx completed in none of ours",
                      (unsigned long long)number, (unsigned long long)epoch);
        return;
    }
    if (lab->first_op_due && seq != 0) {
        lab->first_op_due = false;
        lab->result->first_op_ns = lab_now(lab) - lab->ready_ns;
        lab->result->whole_ns = lab_now(lab) - lab->result->fault_ns;
        lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_FIRST_OP, .epoch = epoch,
                                               .rank = life->seat->rank,
                                               .a = lab->result->first_op_ns});
    }
    app->newest_completed = number; // perhaps within its own submit, which then marks it done
    for (uint32_t i = 0; i < lab->plan->work.layers; i++) {
        struct app_op *op = &app->ops[i];
        if (op->number != number || op->done)
            continue;
        op->done = true;
        app->done++;
        life->dirty = true;
        if (!lab->plan->work.graph)
            return;
    }
}

void app_lost(struct life *life, uint64_t epoch, uint64_t first, uint64_t last) {
    (void)epoch;
    life->seat->lab->result->ops_lost += last - first + 1;
}

uint64_t app_completed_seq(const struct life *life) {
    const struct app *app = &life->app;
    uint64_t completed = app->first_seq - 1;
    for (uint32_t i = 0; i < app->layer && app->ops[i].done; i++)
        if (app->ops[i].seq != 0)
            completed = app->ops[i].seq;
    return completed;
}

// ---- the step ----

static void check_layer(struct life *life, uint32_t layer) {
    struct lab *lab = life->seat->lab;
    const struct sc_payload payload = payload_of(life, layer);
    uint64_t bytes = (uint64_t)payload.world * payload.elements * SC_BF16_BYTES;
    const void *memory = sc_sim_memory(life->process, layer_address(life, layer), bytes);
    char why[160];
    uint64_t digest = 0;
    lab->result->ops_verified++;
    if (memory != NULL && sc_payload_check_result(&payload, memory, &digest, why, sizeof why))
        lab->result->ops_exact++;
    else
        lab_violation(lab, life->seat->rank, "O2 step %llu layer %u seq %llu: %s",
                      (unsigned long long)payload.step, layer,
                      (unsigned long long)life->app.ops[layer].seq,
                      memory == NULL ? "its memory is gone" : why);
    lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_OP, .rank = life->seat->rank,
                                           .epoch = life->app.epoch,
                                           .a = life->app.ops[layer].seq, .b = digest});
}

static void lose(struct life *life) {
    struct app *app = &life->app;
    if (app->phase == APP_AWAY || app->phase == APP_CLOSED)
        return;
    app->phase = APP_AWAY;
    if (app->capture != 0)
        app->release_at_ns = lab_now(life->seat->lab) +
                             lab_draw(life->seat->lab, 0, RELEASE_MAX_NS);
}

// A refusal that means the epoch is over, or a defect of ours.
static void refused(struct life *life, sc_status status) {
    enum sc_status_class class = sc_status_class(status);
    if (class == SC_CLASS_CALLER || class == SC_CLASS_DONE)
        lab_violation(life->seat->lab, life->seat->rank, "a right call was refused with %s",
                      sc_status_name(status));
    lose(life);
}

static void enqueue_kernel(struct life *life, uint32_t layer) {
    uint64_t stream = life->app.streams[layer % life->seat->lab->plan->work.streams];
    uint64_t ns = life->seat->lab->plan->work.compute_ns + life->app.slow_kernel_ns;
    life->app.slow_kernel_ns = 0;
    if (ns == 0)
        return;
    sc_status status = sc_sim_compute(life->process, stream, ns, NULL, NULL);
    if (status != SC_OK && status != SC_CONTEXT_LOST)
        lab_violation(life->seat->lab, life->seat->rank, "the application's kernel: %s",
                      sc_status_name(status));
}

static sc_status submit_layer(struct life *life, uint32_t layer) {
    struct app *app = &life->app;
    const struct sc_payload payload = payload_of(life, layer);
    struct sc_op_desc desc;
    struct sc_op_place place;
    if (!sc_payload_op(&payload, layer_address(life, layer), &desc, &place)) {
        app->ops[layer] = (struct app_op){.done = true}; // this rank has no part in it
        app->done++;
        return SC_OK;
    }
    place.stream = app->streams[layer % life->seat->lab->plan->work.streams];
    struct app_op *op = &app->ops[layer];
    *op = (struct app_op){0};
    app->newest_completed = 0;
    app->submitting = sc_op_is_collective(desc.kind);
    sc_status status =
        sc_pump_submit(life->pump, app->epoch, &desc, &place, &op->number, &op->seq);
    app->submitting = 0;
    if (status == SC_OK && op->number != 0 && op->number == app->newest_completed) {
        op->done = true;
        app->done++;
    }
    if (status == SC_OK && op->seq != 0) {
        life->submitted = op->seq;
        oracle_submitted(life, op->seq, sc_payload_tag(&payload));
    }
    return status;
}

// Submits what is left of the step. False when the process ended or the epoch was lost.
static bool submit_layers(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    while (app->layer < lab->plan->work.layers) {
        if (lab_fire_at_op(lab, life->seat->rank, app->step - 1, app->layer + 1))
            return false;
        if (app->phase != APP_RUNNING || life->paused || app->stalled_until_ns > lab_now(lab))
            return false; // the entry was a reconnect, a close, a pause or a stall
        enqueue_kernel(life, app->layer);
        sc_status status = submit_layer(life, app->layer);
        if (status == SC_BUSY)
            return true; // completions will bring us back
        if (status != SC_OK) {
            refused(life, status);
            return false;
        }
        app->layer++;
    }
    return true;
}

static sc_status capture_step(struct life *life) {
    struct app *app = &life->app;
    sc_status status =
        sc_pump_capture_begin(life->pump, app->epoch, app->streams[0], &app->capture);
    if (status != SC_OK)
        return status;
    for (uint32_t i = 0; i < life->seat->lab->plan->work.layers && status == SC_OK; i++) {
        enqueue_kernel(life, i);
        status = submit_layer(life, i);
    }
    sc_status ended = sc_pump_capture_end(life->pump, app->capture);
    return status != SC_OK ? status : ended;
}

static uint32_t collectives(const struct life *life) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < life->seat->lab->plan->work.layers; i++) {
        const struct sc_payload payload = payload_of(life, i);
        struct sc_op_desc desc;
        struct sc_op_place place;
        count += sc_payload_op(&payload, 0, &desc, &place) && sc_op_is_collective(desc.kind);
    }
    return count;
}

// No epoch ends by it; the step is begun anew a little later.
static void rest_after_failed_capture(struct life *life) {
    struct app *app = &life->app;
    if (app->capture != 0)
        release_capture(life);
    app->phase = APP_RESTING;
    app->at_ns = lab_now(life->seat->lab) + RELEASE_MAX_NS;
}

static bool replay_step(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    uint32_t layers = lab->plan->work.layers;
    if (lab_fire_at_op(lab, life->seat->rank, app->step - 1, 1) || app->phase != APP_RUNNING ||
        life->paused)
        return false;
    sc_status status = app->capture == 0 ? capture_step(life) : SC_OK;
    if (status != SC_OK && app->phase == APP_RUNNING && status != SC_EPOCH_LOST) {
        rest_after_failed_capture(life);
        return true;
    }
    uint64_t number = 0, seq = 0;
    app->done = 0;
    if (status == SC_OK) {
        app->submitting = collectives(life);
        status = sc_pump_replay_begin(life->pump, app->epoch, app->capture, app->streams[0],
                                      &number, &seq);
        app->submitting = 0;
    }
    if (status == SC_BUSY)
        return true;
    if (status != SC_OK) {
        refused(life, status);
        return false;
    }
    for (uint32_t i = 0; i < layers; i++) {
        const struct sc_payload payload = payload_of(life, i);
        struct sc_op_desc desc;
        struct sc_op_place place;
        bool part = sc_payload_op(&payload, layer_address(life, i), &desc, &place);
        bool counts = part && sc_op_is_collective(desc.kind);
        app->ops[i] = (struct app_op){.number = number, .seq = counts ? seq : 0, .done = !part};
        app->done += !part;
        if (counts)
            oracle_submitted(life, life->submitted = seq++, sc_payload_tag(&payload));
    }
    app->layer = layers;
    status = sc_sim_graph_launch(life->process, app->capture, app->streams[0]);
    sc_status ended = sc_pump_replay_end(life->pump, number);
    if (status != SC_OK || ended != SC_OK)
        refused(life, status != SC_OK ? status : ended);
    return app->phase == APP_RUNNING;
}

static bool run_step(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (!lab->plan->work.graph)
        return submit_layers(life);
    return app->layer == lab->plan->work.layers ? true : replay_step(life);
}

static void begin_step(struct life *life) {
    struct app *app = &life->app;
    app->phase = APP_RUNNING;
    app->layer = app->done = 0;
    app->first_seq = life->submitted + 1;
    memset(app->ops, 0, sizeof app->ops[0] * life->seat->lab->plan->work.layers);
    for (uint32_t i = 0; i < life->seat->lab->plan->work.layers; i++)
        fill(life, i);
}

static void commit(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    uint64_t mark = app->step;
    sc_status status = sc_pump_mark(life->pump, app->epoch, mark);
    if (status != SC_OK) {
        refused(life, status);
        return;
    }
    app->step++;
    life->seat->mark = mark;
    if (mark > lab->result->steps)
        lab->result->steps = mark;
    lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_STEP, .rank = life->seat->rank,
                                           .epoch = app->epoch, .a = mark,
                                           .b = lab->plan->work.layers});
    app->phase = APP_RESTING;
    app->at_ns = lab_now(lab) + lab->plan->work.gap_ns;
    (void)lab_fire_at_mark(lab, life->seat->rank, mark);
}

static void finish_step(struct life *life) {
    const struct sc_workload *work = &life->seat->lab->plan->work;
    struct app *app = &life->app;
    for (uint32_t i = 0; i < work->layers; i++)
        check_layer(life, i);
    if (work->sync_every == 0 || app->step % work->sync_every != 0 ||
        life->submitted < app->first_seq) {
        commit(life);
        return;
    }
    app->phase = APP_AGREEING;
    sc_status status = sc_pump_sync(life->pump, app->epoch, life->submitted);
    if (status != SC_OK)
        refused(life, status);
}

// ---- epochs ----

// Redo from the lowest mark of those that remember one; all ranks read the same record.
static uint64_t first_step(const struct sc_recovery *record) {
    uint64_t mark = UINT64_MAX;
    for (uint32_t r = 0; r < record->world; r++)
        if (record->ranks[r].ready_epoch != 0 && record->ranks[r].mark < mark)
            mark = record->ranks[r].mark;
    return mark == UINT64_MAX ? 1 : mark + 1;
}

static void enter_epoch(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    struct sc_recovery record;
    if (sc_pump_take_recovery(life->pump, &record) != SC_OK)
        return;
    app->epoch = record.epoch;
    app->step = first_step(&record);
    app->first_seq = 1;
    app->layer = 0;
    life->submitted = life->agreed = 0;
    app->phase = APP_RESTING;
    app->at_ns = lab_now(lab);
    oracle_ready(life, &record);
    // What a newcomer takes over it has, should the next loss come before its first own step.
    sc_status status = sc_pump_mark(life->pump, app->epoch, app->step - 1);
    if (status != SC_OK)
        refused(life, status);
}

static void follow_state(struct life *life) {
    struct sc_core_view view;
    struct app *app = &life->app;
    sc_pump_view(life->pump, &view);
    if (view.state == SC_STATE_READY && (app->phase == APP_AWAY || view.epoch != app->epoch)) {
        lose(life);
        enter_epoch(life);
    } else if (view.state != SC_STATE_READY) {
        lose(life);
    }
    life->dirty = false;
}

static bool ended_by_itself(struct life *life) {
    if (life->state == SC_STATE_CLOSED)
        life_exit(life, "closed");
    else if (life->state == SC_STATE_FAILED)
        life_exit(life, "failed");
    else
        return false;
    return true;
}

// A thread that comes back goes on where it was, in the epoch it believes in.
static uint64_t stalled(struct life *life) {
    struct app *app = &life->app;
    if (app->stalled_until_ns > lab_now(life->seat->lab))
        return app->stalled_until_ns;
    app->stalled_until_ns = 0;
    if (app->phase == APP_RUNNING)
        (void)run_step(life);
    return 0;
}

uint64_t app_run(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (app->stalled_until_ns != 0)
        return stalled(life);
    if (life->dirty)
        follow_state(life);
    bool useless = app->capture != 0 && (app->phase == APP_AWAY || app->phase == APP_CLOSED);
    if (useless && lab_now(lab) >= app->release_at_ns)
        release_capture(life);
    if (ended_by_itself(life))
        return SC_NEVER_NS;
    if (app->phase == APP_RESTING && lab_now(lab) >= app->at_ns)
        begin_step(life);
    if (app->phase == APP_RUNNING && !run_step(life))
        return 0; // it may have ended in there; if not, it looks again at once
    if (app->phase == APP_RUNNING && app->done == lab->plan->work.layers &&
        app->layer == lab->plan->work.layers) {
        finish_step(life);
        return 0;
    }
    if (app->phase == APP_AGREEING && life->agreed >= life->submitted) {
        commit(life);
        return 0;
    }
    if (app->phase == APP_RESTING)
        return app->at_ns;
    return useless && app->capture != 0 ? app->release_at_ns : SC_NEVER_NS;
}
