// SPDX-License-Identifier: AGPL-3.0-only
//
// What must hold, whatever happens. Those that need a result stand where it is at hand: O1 in app.c,
// O2 in step.c; the contract's, O4, in hal_check and the simulator; the same-hash one, O11, in many.c.
#include "hal_sim/lab/inside.h"

#include <string.h>

#define MS 1000000ull

static struct epoch_seen *find_epoch(struct lab *lab, uint64_t epoch) {
    for (uint32_t i = 0; i < LAB_EPOCHS; i++)
        if (lab->epochs[i].epoch == epoch)
            return &lab->epochs[i];
    return NULL;
}

// O7: how long the others may take, once the first rank has left an epoch. One round trip over the
// coordinator; where links or hosts are being disturbed, silence decides instead.
static uint64_t leave_bound(const struct lab *lab, uint64_t left_ns) {
    const struct sc_timing *t = &lab->plan->core.timing;
    uint64_t bound = 4 * lab->plan->sim.link_latency.max_ns + MS;
    if (left_ns < lab->trouble_until_ns)
        bound = lab->trouble_until_ns - left_ns + t->silence_ns + 2 * t->heartbeat_ns;
    return bound;
}

static void left_ready(struct life *life, const struct sc_action *notice) {
    struct seat *seat = life->seat;
    struct lab *lab = seat->lab;
    seat->left_incarnation = life->incarnation;
    seat->left_epoch = notice->epoch;
    bool entered = life->app.epoch == notice->epoch; // or it was over before the application saw it
    seat->left_submitted = entered ? life->submitted + life->app.submitting : 0;
    seat->left_completed = entered ? sc_app_completed_seq(life) : 0;
    if (lab->struck) {
        lab->struck = false;
        lab->recovering = true;
        lab->result->detect_ns = sc_lab_now(lab) - lab->result->fault_ns;
    }
    if (!lab->any_fault && !lab->ending)
        sc_lab_violation(lab, seat->rank, "O8 left READY with %s though nothing went wrong",
                         sc_status_name((sc_status)notice->status));
    struct epoch_seen *seen = find_epoch(lab, notice->epoch);
    if (seen == NULL)
        return;
    seen->out[seat->rank] = true;
    if (seen->left_ns == 0) {
        seen->left_ns = sc_lab_now(lab);
        lab->watch_until_ns = sc_lab_now(lab) + 3 * leave_bound(lab, sc_lab_now(lab));
    }
    if (sc_lab_now(lab) > seen->left_ns + leave_bound(lab, seen->left_ns))
        sc_lab_violation(lab, seat->rank, "O7 left epoch %llx %llu us after the first rank did",
                         (unsigned long long)seen->epoch,
                         (unsigned long long)(sc_lab_now(lab) - seen->left_ns) / 1000);
}

// O12: to look at a rank costs it nothing below the seam, whatever state it is in.
static void check_view(const struct life *life) {
    uint64_t before = 0, after = 0;
    struct sc_core_view view;
    for (int verb = 0; verb < SC_DEVICE_VERB_COUNT; verb++)
        before += sc_hal_check_calls(life->check, (enum sc_device_verb)verb);
    sc_pump_view(life->pump, &view);
    for (int verb = 0; verb < SC_DEVICE_VERB_COUNT; verb++)
        after += sc_hal_check_calls(life->check, (enum sc_device_verb)verb);
    if (after != before)
        sc_lab_violation(life->seat->lab, life->seat->rank, "O12 a look at it called %llu verbs",
                         (unsigned long long)(after - before));
}

void sc_oracle_state(struct life *life, const struct sc_action *notice) {
    if (life->pump != NULL) // not yet while it opens
        check_view(life);
    if (life->seat->life != life)
        return; // a ghost: nobody relies on it
    if (notice->a == SC_STATE_READY)
        left_ready(life, notice);
}

// O3: the record tells exactly what each rank knew when it left its last epoch.
static void check_record(struct life *life, const struct sc_recovery *record) {
    struct lab *lab = life->seat->lab;
    for (uint32_t r = 0; r < record->world; r++) {
        const struct sc_rank_record *told = &record->ranks[r];
        const struct seat *seat = &lab->seats[r];
        if (told->incarnation != seat->left_incarnation || told->ready_epoch != seat->left_epoch)
            continue;
        if (told->completed != seat->left_completed || told->submitted != seat->left_submitted)
            sc_lab_violation(
                lab, life->seat->rank,
                "O3 rank %u completed %llu of %llu, the record says %llu of %llu", r,
                (unsigned long long)seat->left_completed, (unsigned long long)seat->left_submitted,
                (unsigned long long)told->completed, (unsigned long long)told->submitted);
    }
}

// O9: what a process holds in READY does not grow from one epoch to the next.
static void check_held(struct life *life) {
    const struct lab *lab = life->seat->lab;
    struct sc_sim_held held;
    sc_sim_held(life->process, &held);
    if (!life->has_base) {
        life->base = held;
        life->has_base = true;
    }
    const struct sc_sim_held *base = &life->base;
    if (life->broken)
        return;
    // Each quarantine leaves its receive buffer behind, where there is one.
    uint32_t left = lab->plan->core.world == 2 ? held.quarantined - base->quarantined : 0;
    uint64_t left_bytes = left * lab->plan->core.capacity_bytes;
    if (held.allocations != base->allocations + left || held.streams != base->streams ||
        held.communicators != 1 || held.ops != 0 || held.captures != 0 ||
        held.listeners != base->listeners || held.device_bytes != base->device_bytes + left_bytes)
        sc_lab_violation(life->seat->lab, life->seat->rank,
                         "O9 holds %u allocations, %u communicators, %u ops, %u captures at READY",
                         held.allocations, held.communicators, held.ops, held.captures);
    if (held.registrations < base->registrations && !life->unregistered)
        sc_lab_violation(life->seat->lab, life->seat->rank,
                         "O9 %u registrations, before it were %u", held.registrations,
                         base->registrations);
}

// O5: epochs rise for everyone who remembers one, never repeat, and have one process a rank.
static struct epoch_seen *note_epoch(struct life *life, uint64_t epoch) {
    struct lab *lab = life->seat->lab;
    if (epoch <= life->last_epoch)
        sc_lab_violation(lab, life->seat->rank, "O5 epoch %llx is READY after %llx",
                         (unsigned long long)epoch, (unsigned long long)life->last_epoch);
    life->last_epoch = epoch;
    struct epoch_seen *seen = find_epoch(lab, epoch);
    if (seen != NULL)
        return seen;
    seen = &lab->epochs[lab->epochs_count++ % LAB_EPOCHS];
    *seen = (struct epoch_seen){.epoch = epoch, .first_ready_ns = sc_lab_now(lab)};
    lab->result->epochs++;
    lab->ready_ns = sc_lab_now(lab);
    return seen;
}

static void note_phases(struct life *life, const struct sc_recovery *record) {
    struct lab *lab = life->seat->lab;
    if (life->seat->rank != 0)
        return;
    lab->result->recoveries += record->cause.code != SC_OK;
    lab->result->phases = record->phases;
    lab->first_op_due = lab->recovering;
    lab->recovering = false;
}

void sc_oracle_ready(struct life *life, const struct sc_recovery *record) {
    struct lab *lab = life->seat->lab;
    sc_lab_trace(lab, (struct sc_trace_entry){.kind = SC_TRACE_READY,
                                              .rank = life->seat->rank,
                                              .epoch = record->epoch,
                                              .recovery = record});
    struct epoch_seen *seen = note_epoch(life, record->epoch);
    uint64_t *incarnation = &seen->incarnation[life->seat->rank];
    if (*incarnation != 0 && *incarnation != life->incarnation)
        sc_lab_violation(lab, life->seat->rank, "O5 two processes were READY in epoch %llx",
                         (unsigned long long)record->epoch);
    *incarnation = life->incarnation;
    check_record(life, record);
    check_held(life);
    note_phases(life, record);
    bool all = true;
    for (uint32_t r = 0; r < lab->plan->core.world; r++)
        all = all && seen->incarnation[r] != 0;
    if (all && !lab->any_fault)
        lab->result->ready_before_fault = true;
}

// O13: the ops that pair up on the wire mean the same to every rank's application.
void sc_oracle_submitted(struct life *life, uint64_t seq, uint64_t tag) {
    struct lab *lab = life->seat->lab;
    uint64_t epoch = life->app.epoch;
    struct tag *slot = &lab->tags[(seq ^ epoch >> 24 << 7) % LAB_TAGS];
    if (slot->epoch == epoch && slot->seq == seq) {
        if (slot->tag != tag)
            sc_lab_violation(lab, life->seat->rank, "O13 seq %llu of epoch %llx is mispaired",
                             (unsigned long long)seq, (unsigned long long)epoch);
        return;
    }
    *slot = (struct tag){.epoch = epoch, .seq = seq, .tag = tag};
}

void sc_oracle_fault(struct lab *lab, uint64_t disturbs_links_ns) {
    uint64_t now = sc_lab_now(lab);
    lab->any_fault = true;
    lab->last_fault_ns = now;
    lab->struck = true;
    lab->result->fault_ns = now;
    if (disturbs_links_ns != 0 && now + disturbs_links_ns > lab->trouble_until_ns)
        lab->trouble_until_ns = now + disturbs_links_ns;
}

// O7 for ranks that have not left at all.
static void check_stragglers(struct lab *lab, const struct epoch_seen *seen) {
    if (seen->left_ns == 0 || sc_lab_now(lab) <= seen->left_ns + leave_bound(lab, seen->left_ns))
        return;
    for (uint32_t r = 0; r < lab->plan->core.world; r++) {
        const struct seat *seat = &lab->seats[r];
        const struct life *life = seat->life;
        if (life == NULL || life->incarnation != seen->incarnation[r] || seen->out[r] ||
            life->paused)
            continue;
        struct sc_core_view view;
        sc_pump_view(life->pump, &view);
        if (view.state == SC_STATE_READY && view.epoch == seen->epoch)
            sc_lab_violation(lab, r, "O7 still in epoch %llx, which others left %llu us ago",
                             (unsigned long long)seen->epoch,
                             (unsigned long long)(sc_lab_now(lab) - seen->left_ns) / 1000);
    }
}

void sc_oracle_time(struct lab *lab) {
    if (sc_lab_now(lab) > lab->watch_until_ns)
        return;
    for (uint32_t i = 0; i < LAB_EPOCHS; i++)
        check_stragglers(lab, &lab->epochs[i]);
}

// O10: a stranger, however it behaves, is told a challenge and nothing more.
static void check_strangers(struct lab *lab) {
    uint64_t most = SC_FRAME_HEADER_BYTES + sizeof(uint64_t) + SC_NONCE_BYTES;
    if (sc_sim_stranger_bytes(lab->sim) > most)
        sc_lab_violation(lab, 0, "O10 a stranger was sent %llu bytes, a challenge has %llu",
                         (unsigned long long)sc_sim_stranger_bytes(lab->sim),
                         (unsigned long long)most);
}

// O6: once nothing goes wrong any more, all are READY in one epoch, and working.
void sc_oracle_end(struct lab *lab) {
    uint64_t epoch = 0;
    check_strangers(lab);
    if (lab->plan->free_end)
        return;
    for (uint32_t r = 0; r < lab->plan->core.world; r++) {
        const struct seat *seat = &lab->seats[r];
        struct sc_core_view view = {.state = SC_STATE_CLOSED};
        if (seat->life != NULL)
            sc_pump_view(seat->life->pump, &view);
        epoch = r == 0 ? view.epoch : epoch;
        if (view.state != SC_STATE_READY || view.epoch != epoch)
            sc_lab_violation(lab, r, "O6 is %s at the end, %llu ms after the last fault",
                             seat->life == NULL ? "not running" : sc_state_name(view.state),
                             (unsigned long long)((sc_lab_now(lab) - lab->last_fault_ns) / MS));
        else if (seat->commits == seat->commits_at_quiet)
            sc_lab_violation(lab, r,
                             "O6 is READY but has committed nothing since the faults ended");
    }
}

// O9: an orderly end leaves nothing behind but what an abort that never returned may still touch.
void sc_oracle_exit(struct life *life) {
    struct sc_sim_held held;
    sc_sim_held(life->process, &held);
    char text[200];
    uint32_t leaks = sc_hal_check_leaks(life->check, text, sizeof text);
    bool stuck = held.quarantined != 0 || held.communicators != 0;
    if (!stuck && !life->broken && leaks != 0)
        sc_lab_violation(life->seat->lab, life->seat->rank, "O9 left at exit: %s", text);
    if (held.links != 0 || held.listeners != 0)
        sc_lab_violation(life->seat->lab, life->seat->rank,
                         "O9 left at exit: %u links, %u listeners", held.links, held.listeners);
}
