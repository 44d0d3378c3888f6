// SPDX-License-Identifier: AGPL-3.0-only
//
// What an engine does, in small: one step after another, and after a loss it takes the recovery
// record and redoes from the lowest mark.
#include "hal_sim/lab/inside.h"

static const struct sc_device *device_of(const struct life *life) {
    return sc_hal_check_device(life->check);
}

sc_status sc_app_open(struct life *life) {
    const struct sc_plan *plan = life->seat->lab->plan;
    const struct sc_device *d = device_of(life);
    uint64_t bytes =
        (uint64_t)plan->work.layers * plan->core.world * plan->work.elements * SC_BF16_BYTES;
    for (uint32_t i = 0; i < plan->work.streams; i++)
        if (d->stream_create(d->ctx, &life->app.streams[i]) != SC_OK)
            return SC_DEVICE_ERROR;
    sc_status status = d->mem_alloc(d->ctx, bytes, &life->app.memory);
    if (status != SC_OK)
        return status;
    return sc_pump_register(life->pump, life->app.memory, bytes);
}

void sc_app_release_capture(struct life *life) {
    if (sc_pump_capture_release(life->pump, life->app.capture) == SC_OK)
        life->app.capture = 0;
    else
        life->app.release_at_ns += LAB_RELEASE_NS;
}

void sc_app_close(struct life *life) {
    const struct sc_device *d = device_of(life);
    struct app *app = &life->app;
    if (app->capture != 0)
        sc_app_release_capture(life);
    if (sc_pump_deregister(life->pump, app->memory) != SC_OK)
        sc_lab_violation(life->seat->lab, life->seat->rank, "a registered buffer was forgotten");
    (void)d->mem_free(d->ctx, app->memory);
    for (uint32_t i = 0; i < life->seat->lab->plan->work.streams; i++)
        (void)d->stream_destroy(d->ctx, app->streams[i]);
}

// ---- completions ----

void sc_app_completed(struct life *life, uint64_t epoch, uint64_t number, uint64_t seq) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (epoch != app->epoch || app->phase != APP_RUNNING) {
        sc_lab_violation(lab, life->seat->rank,
                         "O1 op %llu of epoch %llx completed in none of ours",
                         (unsigned long long)number, (unsigned long long)epoch);
        return;
    }
    if (lab->first_op_due && seq != 0) {
        lab->first_op_due = false;
        lab->result->first_op_ns = sc_lab_now(lab) - lab->ready_ns;
        lab->result->whole_ns = sc_lab_now(lab) - lab->result->fault_ns;
        sc_lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_FIRST_OP,
                                                  .epoch = epoch,
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

void sc_app_lost(struct life *life, uint64_t epoch, uint64_t first, uint64_t last) {
    (void)epoch;
    life->seat->lab->result->ops_lost += last - first + 1;
}

uint64_t sc_app_completed_seq(const struct life *life) {
    const struct app *app = &life->app;
    uint64_t completed = app->first_seq - 1;
    for (uint32_t i = 0; i < app->layer && app->ops[i].done; i++)
        if (app->ops[i].seq != 0)
            completed = app->ops[i].seq;
    return completed;
}

// ---- epochs ----

void sc_app_lose(struct life *life) {
    struct app *app = &life->app;
    if (app->phase == APP_AWAY || app->phase == APP_CLOSED)
        return;
    app->phase = APP_AWAY;
    if (app->capture != 0)
        app->release_at_ns =
            sc_lab_now(life->seat->lab) + sc_lab_draw(life->seat->lab, 0, LAB_RELEASE_NS);
}

// A refusal that means the epoch is over, or a defect of ours.
void sc_app_refused(struct life *life, sc_status status) {
    enum sc_status_class class = sc_status_class(status);
    if (class == SC_CLASS_CALLER || class == SC_CLASS_DONE)
        sc_lab_violation(life->seat->lab, life->seat->rank, "a right call was refused with %s",
                         sc_status_name(status));
    sc_app_lose(life);
}

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
    app->at_ns = sc_lab_now(lab);
    sc_oracle_ready(life, &record);
    // What a newcomer takes over it has, should the next loss come before its first own step.
    sc_status status = sc_pump_mark(life->pump, app->epoch, app->step - 1);
    if (status != SC_OK)
        sc_app_refused(life, status);
}

static void follow_state(struct life *life) {
    struct sc_core_view view;
    struct app *app = &life->app;
    sc_pump_view(life->pump, &view);
    if (view.state == SC_STATE_READY && (app->phase == APP_AWAY || view.epoch != app->epoch)) {
        sc_app_lose(life);
        enter_epoch(life);
    } else if (view.state != SC_STATE_READY) {
        sc_app_lose(life);
    }
    life->dirty = false;
}

static bool ended_by_itself(struct life *life) {
    if (life->state == SC_STATE_CLOSED)
        sc_life_exit(life, "closed");
    else if (life->state == SC_STATE_FAILED)
        sc_life_exit(life, "failed");
    else
        return false;
    return true;
}

// A thread that comes back goes on where it was, in the epoch it believes in.
static uint64_t stalled(struct life *life) {
    struct app *app = &life->app;
    if (app->stalled_until_ns > sc_lab_now(life->seat->lab))
        return app->stalled_until_ns;
    app->stalled_until_ns = 0;
    if (app->phase == APP_RUNNING)
        (void)sc_step_run(life);
    return 0;
}

uint64_t sc_app_run(struct life *life) {
    struct lab *lab = life->seat->lab;
    struct app *app = &life->app;
    if (app->stalled_until_ns != 0)
        return stalled(life);
    if (life->dirty)
        follow_state(life);
    bool useless = app->capture != 0 && (app->phase == APP_AWAY || app->phase == APP_CLOSED);
    if (useless && sc_lab_now(lab) >= app->release_at_ns)
        sc_app_release_capture(life);
    if (ended_by_itself(life))
        return SC_NEVER_NS;
    if (app->phase == APP_RESTING && sc_lab_now(lab) >= app->at_ns)
        sc_step_begin(life);
    if (app->phase == APP_RUNNING && !sc_step_run(life))
        return 0; // it may have ended in there; if not, it looks again at once
    if (app->phase == APP_RUNNING && app->done == lab->plan->work.layers &&
        app->layer == lab->plan->work.layers) {
        sc_step_finish(life);
        return 0;
    }
    if (app->phase == APP_AGREEING && life->agreed >= life->submitted) {
        sc_step_commit(life);
        return 0;
    }
    if (app->phase == APP_RESTING)
        return app->at_ns;
    return useless && app->capture != 0 ? app->release_at_ns : SC_NEVER_NS;
}
