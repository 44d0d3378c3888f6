// SPDX-License-Identifier: AGPL-3.0-only
//
// The checked verbs of communicators and of the fence, which may be up only while one is ready.
#include "hal/hal_check_state.h"

#include <inttypes.h>
#include <string.h>

static sc_status comm_id(void *ctx, struct sc_comm_id *id) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_id);
    struct sc_comm_id fresh, untouched;

    memset(&fresh, 0xA5, sizeof fresh);
    untouched = fresh;
    sc_status answer = check->inner->comm_id(check->inner->ctx, &fresh);
    bool written = memcmp(&fresh, &untouched, sizeof fresh) != 0;
    if (answer != SC_OK) {
        if (written)
            sc_check_device_breach(check, SC_VERB_comm_id, answer, "wrote its output");
        return answer;
    }
    if (!written)
        return sc_check_device_breach(check, SC_VERB_comm_id, answer, "did not write its output");
    *id = fresh;
    return answer;
}

static bool is_sound(struct sc_hal_check *check, const struct sc_comm_spec *spec) {
    bool sound = spec->world >= 1 && spec->world <= SC_WORLD_MAX && spec->rank < spec->world &&
                 spec->epoch != 0;

    if (!sound)
        sc_check_breach(check, SC_VERB_comm_create,
                        "rank %" PRIu32 " of world %" PRIu32 " in epoch %#" PRIx64
                        " is no communicator",
                        spec->rank, spec->world, spec->epoch);
    return sound;
}

static bool use_id(struct sc_hal_check *check, const struct sc_comm_id *id) {
    for (uint32_t i = 0; i < check->id_count; i++) {
        if (memcmp(&check->ids[i], id, sizeof *id) == 0) {
            sc_check_breach(check, SC_VERB_comm_create, "the communicator id was used before");
            return false;
        }
    }
    check->ids[check->id_next] = *id;
    check->id_next = (check->id_next + 1) % SC_HAL_CHECK_IDS_MAX;
    if (check->id_count < SC_HAL_CHECK_IDS_MAX)
        check->id_count++;
    return true;
}

static bool has_room(struct sc_hal_check *check) {
    if (check->users == UINT64_MAX)
        sc_check_breach(check, SC_VERB_comm_create, "%u communicators are held already",
                        SC_HAL_CHECK_COMMS_MAX);
    return check->users != UINT64_MAX;
}

static sc_status comm_create(void *ctx, const struct sc_comm_spec *spec, uint64_t *comm) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_create);
    uint64_t handle = SC_CHECK_UNSET;

    if (!sc_check_outside_group(check, SC_VERB_comm_create) || !is_sound(check, spec) ||
        !has_room(check) || !use_id(check, &spec->id))
        return SC_STATE;
    sc_status answer = check->inner->comm_create(check->inner->ctx, spec, &handle);
    answer = sc_check_output(check, SC_VERB_comm_create, answer, handle, comm);
    if (answer != SC_OK || handle == SC_CHECK_UNSET || handle == 0)
        return answer;

    struct sc_held *held = sc_check_add(check, SC_VERB_comm_create, SC_HELD_COMM, handle);
    if (held == NULL)
        return answer;
    held->epoch = spec->epoch;
    held->world = spec->world;
    held->user = (uint8_t)__builtin_ctzll(~check->users);
    check->users |= UINT64_C(1) << held->user;
    return answer;
}

static void end_registrations(struct sc_hal_check *check, uint64_t comm) {
    for (uint32_t i = check->held_count; i-- > 0;)
        if (check->held[i].kind == SC_HELD_REGISTRATION && check->held[i].owner == comm)
            sc_check_remove(check, &check->held[i]);
}

// The communicator is gone: it keeps no memory any more.
static void end_comm(struct sc_hal_check *check, uint64_t comm) {
    end_registrations(check, comm);

    struct sc_held *held = sc_check_find(check, SC_HELD_COMM, comm);
    uint64_t others = ~(UINT64_C(1) << held->user);
    for (uint32_t i = 0; i < check->allocation_count; i++)
        check->allocations[i].users &= others;
    check->users &= others;
    sc_check_remove(check, held);
}

// What is wrong with a report, or NULL.
static const char *report_objection(const struct sc_held *held,
                                    const struct sc_comm_report *report) {
    switch (report->state) {
    case SC_COMM_FORMING:
        return held->ready && !held->abort_tried ? "reported a ready communicator as forming"
                                                 : NULL;
    case SC_COMM_READY:
        return held->failed && !held->abort_tried ? "reported a failed communicator as ready"
                                                  : NULL;
    case SC_COMM_ERROR:
        return report->error == SC_COMM_FAILED || report->error == SC_ASYNC_ERROR ||
                       report->error == SC_CONTEXT_LOST
                   ? NULL
                   : "reported an error that is none of a communicator's";
    case SC_COMM_GONE: return held->abort_tried ? NULL : "reported as gone what nobody aborted";
    }
    return "reported a state that does not exist";
}

static sc_status comm_poll(void *ctx, uint64_t comm, struct sc_comm_report *report) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_poll);
    struct sc_held *held = sc_check_demand(check, SC_VERB_comm_poll, SC_HELD_COMM, comm);
    struct sc_comm_report fresh = {.formed_ns = SC_CHECK_UNSET};

    if (held == NULL)
        return SC_STATE;
    sc_status answer = check->inner->comm_poll(check->inner->ctx, comm, &fresh);
    bool written = fresh.formed_ns != SC_CHECK_UNSET;
    if (answer != SC_OK) {
        if (written)
            sc_check_device_breach(check, SC_VERB_comm_poll, answer, "wrote its output");
        return answer;
    }
    const char *objection = written ? report_objection(held, &fresh) : "did not write its output";
    if (objection != NULL)
        sc_check_device_breach(check, SC_VERB_comm_poll, answer, objection);
    if (!written)
        return answer;

    held->ready = held->ready || fresh.state == SC_COMM_READY;
    held->failed = held->failed || fresh.state == SC_COMM_ERROR;
    if (fresh.state == SC_COMM_GONE)
        end_comm(check, comm);
    *report = fresh;
    return answer;
}

static sc_status comm_error(void *ctx, uint64_t comm) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_error);

    if (sc_check_usable_comm(check, SC_VERB_comm_error, comm) == NULL)
        return SC_STATE;
    return check->inner->comm_error(check->inner->ctx, comm);
}

static sc_status comm_abort(void *ctx, uint64_t comm) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_abort);
    struct sc_held *held = sc_check_demand(check, SC_VERB_comm_abort, SC_HELD_COMM, comm);

    if (held == NULL || !sc_check_outside_group(check, SC_VERB_comm_abort))
        return SC_STATE;
    if (held->aborted)
        return sc_check_breach(check, SC_VERB_comm_abort,
                               "communicator %#" PRIx64 " was aborted before", comm);
    held->abort_tried = true;
    sc_status answer = check->inner->comm_abort(check->inner->ctx, comm);
    if (answer == SC_OK || answer == SC_INPROGRESS) {
        held->aborted = true;
        held->aborted_by = sc_check_thread();
        end_registrations(check, comm);
    }
    return answer;
}

static sc_status comm_abandon(void *ctx, uint64_t comm) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_comm_abandon);
    struct sc_held *held = sc_check_demand(check, SC_VERB_comm_abandon, SC_HELD_COMM, comm);

    if (held == NULL)
        return SC_STATE;
    if (!held->abort_tried)
        return sc_check_breach(check, SC_VERB_comm_abandon,
                               "communicator %#" PRIx64 " was not aborted first", comm);
    sc_status answer = check->inner->comm_abandon(check->inner->ctx, comm);
    if (answer == SC_OK)
        end_comm(check, comm);
    return answer;
}

static sc_status captures_held(void *ctx, uint64_t comm, uint32_t *held) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_captures_held);
    struct sc_held *entry = sc_check_demand(check, SC_VERB_captures_held, SC_HELD_COMM, comm);

    if (entry == NULL)
        return SC_STATE;
    if (!entry->aborted && sc_check_usable_comm(check, SC_VERB_captures_held, comm) == NULL)
        return SC_STATE;
    return check->inner->captures_held(check->inner->ctx, comm, held);
}

static bool is_live_epoch(const struct sc_hal_check *check, uint64_t epoch) {
    for (uint32_t i = 0; i < check->held_count; i++) {
        const struct sc_held *held = &check->held[i];

        if (held->kind == SC_HELD_COMM && held->epoch == epoch && held->ready && !held->failed &&
            !held->aborted)
            return true;
    }
    return false;
}

static void note_fence(struct sc_hal_check *check, uint64_t epoch) {
    if (epoch == 0 && check->fence != 0) {
        check->lowered_from = check->fence;
        check->lowered_by = sc_check_thread();
    }
    check->fence = epoch;
}

static sc_status fence_set(void *ctx, uint64_t epoch) {
    struct sc_hal_check *check = sc_check_enter(ctx, SC_VERB_fence_set);

    if (epoch != 0 && !is_live_epoch(check, epoch))
        return sc_check_breach(check, SC_VERB_fence_set,
                               "no communicator of epoch %#" PRIx64 " is ready", epoch);
    sc_status answer = check->inner->fence_set(check->inner->ctx, epoch);
    if (answer == SC_OK)
        note_fence(check, epoch);
    return answer;
}

void sc_check_enter_comm_verbs(struct sc_device *device) {
    device->comm_id = comm_id;
    device->comm_create = comm_create;
    device->comm_poll = comm_poll;
    device->comm_error = comm_error;
    device->comm_abort = comm_abort;
    device->comm_abandon = comm_abandon;
    device->captures_held = captures_held;
    device->fence_set = fence_set;
}
