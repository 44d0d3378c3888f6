// SPDX-License-Identifier: AGPL-3.0-only
//
// One step of an application: fill the buffers, submit a collective a layer, eagerly or as a graph,
// and compare what came of them bit for bit.
#include "hal_sim/lab/inside.h"
#include "hal_sim/lab/payload.h"

#include <string.h>

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

static void fill(struct life *life, uint32_t layer) {
    const struct sc_payload payload = payload_of(life, layer);
    uint64_t bytes = (uint64_t)payload.world * payload.elements * SC_BF16_BYTES;
    void *memory = sc_sim_memory(life->process, layer_address(life, layer), bytes);
    if (memory != NULL)
        sc_payload_fill(&payload, memory);
}

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
        sc_lab_violation(lab, life->seat->rank, "O2 step %llu layer %u seq %llu: %s",
                         (unsigned long long)payload.step, layer,
                         (unsigned long long)life->app.ops[layer].seq,
                         memory == NULL ? "its memory is gone" : why);
    sc_lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_OP,
                                              .rank = life->seat->rank,
                                              .epoch = life->app.epoch,
                                              .a = life->app.ops[layer].seq,
                                              .b = digest});
}

static uint64_t slow_kernel(struct life *life) {
    uint64_t ns = life->app.slow_kernel_ns;
    life->app.slow_kernel_ns = 0;
    return ns;
}

static void enqueue_kernel(struct life *life, uint32_t layer, uint64_t ns) {
    uint64_t stream = life->app.streams[layer % life->seat->lab->plan->work.streams];
    if (ns == 0)
        return;
    sc_status status = sc_sim_compute(life->process, stream, ns, NULL, NULL);
    if (status != SC_OK && status != SC_CONTEXT_LOST)
        sc_lab_violation(life->seat->lab, life->seat->rank, "the application's kernel: %s",
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
    sc_status status = sc_pump_submit(life->pump, app->epoch, &desc, &place, &op->number, &op->seq);
    app->submitting = 0;
    if (status == SC_OK && op->number != 0 && op->number == app->newest_completed) {
        op->done = true;
        app->done++;
    }
    if (status == SC_OK && op->seq != 0) {
        life->submitted = op->seq;
        sc_oracle_submitted(life, op->seq, sc_payload_tag(&payload));
    }
    return status;
}

// Not when what has just struck was a reconnect, a close, a pause or a stall.
static bool may_submit(const struct life *life) {
    return life->app.phase == APP_RUNNING && !life->paused &&
           life->app.stalled_until_ns <= sc_lab_now(life->seat->lab);
}

// Submits what is left of the step. False when the process ended or the epoch was lost.
static bool submit_layers(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    while (app->layer < lab->plan->work.layers) {
        if (sc_lab_fire_at_op(lab, life->seat->rank, app->step - 1, app->layer + 1))
            return false;
        if (!may_submit(life))
            return false;
        enqueue_kernel(life, app->layer, lab->plan->work.compute_ns + slow_kernel(life));
        sc_status status = submit_layer(life, app->layer);
        if (status == SC_BUSY)
            return true; // completions will bring us back
        if (status != SC_OK) {
            sc_app_refused(life, status);
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
        enqueue_kernel(life, i, life->seat->lab->plan->work.compute_ns);
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
        sc_app_release_capture(life);
    app->phase = APP_RESTING;
    app->at_ns = sc_lab_now(life->seat->lab) + LAB_RELEASE_NS;
}

// One number, and a seq for each collective in the graph.
static void note_replayed(struct life *life, uint64_t number, uint64_t seq) {
    struct app *app = &life->app;
    for (uint32_t i = 0; i < life->seat->lab->plan->work.layers; i++) {
        const struct sc_payload payload = payload_of(life, i);
        struct sc_op_desc desc;
        struct sc_op_place place;
        bool part = sc_payload_op(&payload, layer_address(life, i), &desc, &place);
        bool counts = part && sc_op_is_collective(desc.kind);
        app->ops[i] = (struct app_op){.number = number, .seq = counts ? seq : 0, .done = !part};
        app->done += !part;
        app->layer++;
        if (counts)
            sc_oracle_submitted(life, life->submitted = seq++, sc_payload_tag(&payload));
    }
}

static bool replay_step(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (sc_lab_fire_at_op(lab, life->seat->rank, app->step - 1, 1) || !may_submit(life))
        return false;
    sc_status status = app->capture == 0 ? capture_step(life) : SC_OK;
    if (status != SC_OK && app->phase == APP_RUNNING && status != SC_EPOCH_LOST) {
        rest_after_failed_capture(life);
        return true;
    }
    uint64_t number = 0, seq = 0;
    app->done = 0;
    enqueue_kernel(life, 0, slow_kernel(life));
    if (status == SC_OK) {
        app->submitting = collectives(life);
        status = sc_pump_replay_begin(life->pump, app->epoch, app->capture, app->streams[0],
                                      &number, &seq);
        app->submitting = 0;
    }
    if (status == SC_BUSY)
        return true;
    if (status != SC_OK) {
        sc_app_refused(life, status);
        return false;
    }
    note_replayed(life, number, seq);
    status = sc_sim_graph_launch(life->process, app->capture, app->streams[0]);
    sc_status ended = sc_pump_replay_end(life->pump, number);
    if (status != SC_OK || ended != SC_OK)
        sc_app_refused(life, status != SC_OK ? status : ended);
    return app->phase == APP_RUNNING;
}

bool sc_step_run(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (!lab->plan->work.graph)
        return submit_layers(life);
    return app->layer == lab->plan->work.layers ? true : replay_step(life);
}

void sc_step_begin(struct life *life) {
    struct app *app = &life->app;
    app->phase = APP_RUNNING;
    app->layer = app->done = 0;
    app->first_seq = life->submitted + 1;
    memset(app->ops, 0, sizeof app->ops[0] * life->seat->lab->plan->work.layers);
    for (uint32_t i = 0; i < life->seat->lab->plan->work.layers; i++)
        fill(life, i);
}

void sc_step_commit(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    uint64_t mark = app->step;
    sc_status status = sc_pump_mark(life->pump, app->epoch, mark);
    if (status != SC_OK) {
        sc_app_refused(life, status);
        return;
    }
    app->step++;
    life->seat->mark = mark;
    life->seat->commits++;
    if (mark > lab->result->steps)
        lab->result->steps = mark;
    sc_lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_STEP,
                                              .rank = life->seat->rank,
                                              .epoch = app->epoch,
                                              .a = mark,
                                              .b = lab->plan->work.layers});
    app->phase = APP_RESTING;
    app->at_ns = sc_lab_now(lab) + lab->plan->work.gap_ns;
    (void)sc_lab_fire_at_mark(lab, life->seat->rank, mark);
}

void sc_step_finish(struct life *life) {
    const struct sc_workload *work = &life->seat->lab->plan->work;
    struct app *app = &life->app;
    for (uint32_t i = 0; i < work->layers; i++)
        check_layer(life, i);
    if (work->sync_every == 0 || app->step % work->sync_every != 0 ||
        life->submitted < app->first_seq) {
        sc_step_commit(life);
        return;
    }
    app->phase = APP_AGREEING;
    sc_status status = sc_pump_sync(life->pump, app->epoch, life->submitted);
    if (status != SC_OK)
        sc_app_refused(life, status);
}
