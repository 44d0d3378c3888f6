// SPDX-License-Identifier: AGPL-3.0-only
//
// The checked verbs of ops, streams, captures and replays: each begins once, ends once, is released
// once, and in that order.
#include "hal/hal_check_state.h"

#include <inttypes.h>

// The tail of a verb that handed out `handle`, or failed to.
static sc_status hand_out(struct sc_hal_check *check, enum sc_device_verb verb, sc_status answer,
                          uint64_t handle, uint64_t *out, const struct sc_held *as) {
    answer = sc_check_output(check, verb, answer, handle, out);
    if (answer != SC_OK || handle == SC_CHECK_UNSET)
        return answer;

    struct sc_held *held = sc_check_add(check, verb, as->kind, handle);
    if (held != NULL) {
        *held = *as;
        held->handle = handle;
    }
    return answer;
}

// ---- ops ------------------------------------------------------------------------------------

static sc_status op_begin(void *ctx, uint64_t stream, uint64_t *op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_op_begin);
    struct sc_held as = {.kind = SC_HELD_OP, .owner = stream};
    uint64_t handle = SC_CHECK_UNSET;

    if (!sc_check_outside_group(check, SC_VERB_op_begin))
        return SC_STATE;
    sc_status answer = check->inner->op_begin(check->inner->ctx, stream, &handle);
    return hand_out(check, SC_VERB_op_begin, answer, handle, op, &as);
}

// The op that op_end or replay_end may end now. NULL after a report.
static struct sc_held *op_to_end(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t op,
                                 bool replay) {
    struct sc_held *held = sc_check_demand(check, verb, SC_HELD_OP, op);
    const char *wrong = NULL;

    if (held == NULL || !sc_check_outside_group(check, verb))
        return NULL;
    if (held->replay != replay)
        wrong = replay ? "was not begun by replay_begin" : "was begun by replay_begin";
    else if (held->ended)
        wrong = "was ended before";
    if (wrong != NULL)
        sc_check_breach(check, verb, "op %#" PRIx64 " %s", op, wrong);
    return wrong == NULL ? held : NULL;
}

static sc_status op_end(void *ctx, uint64_t op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_op_end);
    struct sc_held *held = op_to_end(check, SC_VERB_op_end, op, false);

    if (held == NULL)
        return SC_STATE;
    held->ended = true;
    return check->inner->op_end(check->inner->ctx, op);
}

static sc_status op_poll(void *ctx, uint64_t op, enum sc_op_state *state) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_op_poll);
    const enum sc_op_state unset = (enum sc_op_state)(SC_OP_FAILED + 1);
    enum sc_op_state fresh = unset;

    if (sc_check_demand(check, SC_VERB_op_poll, SC_HELD_OP, op) == NULL)
        return SC_STATE;
    sc_status answer = check->inner->op_poll(check->inner->ctx, op, &fresh);
    if (answer != SC_OK) {
        if (fresh != unset)
            sc_check_device_breach(check, SC_VERB_op_poll, answer, "wrote its output");
        return answer;
    }
    if (fresh > SC_OP_FAILED)
        return sc_check_device_breach(check, SC_VERB_op_poll, answer, "reported no state of an op");
    *state = fresh;
    return answer;
}

// Whether the op's end was marked. False after a report.
static bool has_ended(struct sc_hal_check *check, enum sc_device_verb verb, uint64_t op) {
    const struct sc_held *held = sc_check_demand(check, verb, SC_HELD_OP, op);

    if (held == NULL)
        return false;
    if (!held->ended)
        sc_check_breach(check, verb, "the end of op %#" PRIx64 " was not marked yet", op);
    return held->ended;
}

static sc_status op_release(void *ctx, uint64_t op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_op_release);

    if (!has_ended(check, SC_VERB_op_release, op))
        return SC_STATE;
    sc_status answer = check->inner->op_release(check->inner->ctx, op);
    if (answer == SC_OK)
        sc_check_remove(check, sc_check_find(check, SC_HELD_OP, op));
    return answer;
}

static sc_status stream_check(void *ctx, uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_stream_check);

    return check->inner->stream_check(check->inner->ctx, stream);
}

static sc_status stream_wait(void *ctx, uint64_t stream, uint64_t op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_stream_wait);

    if (!has_ended(check, SC_VERB_stream_wait, op))
        return SC_STATE;
    return check->inner->stream_wait(check->inner->ctx, stream, op);
}

// ---- streams, captures, replays -------------------------------------------------------------

static sc_status stream_create(void *ctx, uint64_t *stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_stream_create);
    struct sc_held as = {.kind = SC_HELD_STREAM};
    uint64_t handle = SC_CHECK_UNSET;

    sc_status answer = check->inner->stream_create(check->inner->ctx, &handle);
    return hand_out(check, SC_VERB_stream_create, answer, handle, stream, &as);
}

static sc_status stream_destroy(void *ctx, uint64_t stream) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_stream_destroy);
    struct sc_held *held = sc_check_demand(check, SC_VERB_stream_destroy, SC_HELD_STREAM, stream);

    if (held == NULL)
        return SC_STATE;
    sc_status answer = check->inner->stream_destroy(check->inner->ctx, stream);
    if (answer == SC_OK)
        sc_check_remove(check, held);
    return answer;
}

static sc_status capture_begin(void *ctx, uint64_t stream, uint64_t *capture) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_capture_begin);
    struct sc_held as = {.kind = SC_HELD_CAPTURE, .owner = stream};
    uint64_t handle = SC_CHECK_UNSET;

    if (sc_check_is_capturing(check, stream))
        return sc_check_breach(check, SC_VERB_capture_begin,
                               "stream %#" PRIx64 " is capturing already", stream);
    sc_status answer = check->inner->capture_begin(check->inner->ctx, stream, &handle);
    uint32_t held_before = check->held_count;
    answer = hand_out(check, SC_VERB_capture_begin, answer, handle, capture, &as);
    check->capturing += check->held_count - held_before;
    return answer;
}

static sc_status capture_end(void *ctx, uint64_t capture) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_capture_end);
    struct sc_held *held = sc_check_demand(check, SC_VERB_capture_end, SC_HELD_CAPTURE, capture);

    if (held == NULL)
        return SC_STATE;
    if (held->ended)
        return sc_check_breach(check, SC_VERB_capture_end, "capture %#" PRIx64 " was ended before",
                               capture);
    held->ended = true;
    check->capturing--;
    return check->inner->capture_end(check->inner->ctx, capture);
}

// The capture, recorded to its end. NULL after a report.
static struct sc_held *ended_capture(struct sc_hal_check *check, enum sc_device_verb verb,
                                     uint64_t capture) {
    struct sc_held *held = sc_check_demand(check, verb, SC_HELD_CAPTURE, capture);

    if (held == NULL || held->ended)
        return held;
    sc_check_breach(check, verb, "capture %#" PRIx64 " was not ended yet", capture);
    return NULL;
}

static sc_status capture_release(void *ctx, uint64_t capture) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_capture_release);
    struct sc_held *held = ended_capture(check, SC_VERB_capture_release, capture);

    if (held == NULL)
        return SC_STATE;
    sc_status answer = check->inner->capture_release(check->inner->ctx, capture);
    if (answer == SC_OK)
        sc_check_remove(check, held);
    return answer;
}

static sc_status replay_begin(void *ctx, uint64_t capture, uint64_t stream, uint64_t epoch,
                              uint64_t *op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_replay_begin);
    struct sc_held as = {.kind = SC_HELD_OP, .owner = stream, .replay = true};
    uint64_t handle = SC_CHECK_UNSET;

    if (ended_capture(check, SC_VERB_replay_begin, capture) == NULL ||
        !sc_check_outside_group(check, SC_VERB_replay_begin))
        return SC_STATE;
    sc_status answer =
        check->inner->replay_begin(check->inner->ctx, capture, stream, epoch, &handle);
    return hand_out(check, SC_VERB_replay_begin, answer, handle, op, &as);
}

static sc_status replay_end(void *ctx, uint64_t op) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_replay_end);
    struct sc_held *held = op_to_end(check, SC_VERB_replay_end, op, true);

    if (held == NULL)
        return SC_STATE;
    held->ended = true;
    return check->inner->replay_end(check->inner->ctx, op);
}

static void ops_look(void *ctx) {
    const struct sc_hal_check *check = ctx;

    check->inner->ops_look(check->inner->ctx);
}

void sc_check_enter_op_verbs(struct sc_device *device) {
    device->op_begin = op_begin;
    device->op_end = op_end;
    device->op_poll = op_poll;
    device->op_release = op_release;
    device->stream_check = stream_check;
    device->stream_wait = stream_wait;
    device->stream_create = stream_create;
    device->stream_destroy = stream_destroy;
    device->capture_begin = capture_begin;
    device->capture_end = capture_end;
    device->capture_release = capture_release;
    device->replay_begin = replay_begin;
    device->replay_end = replay_end;
    device->ops_look = ops_look;
}
