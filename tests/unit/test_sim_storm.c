// SPDX-License-Identifier: AGPL-3.0-only
//
// A storm of random calls, faults, deaths and stale handles: the world must bear it, and bear it
// the same way for the same seed. Contracts are broken here on purpose; only the count of the
// breaches is part of the trace.
#include "tests/unit/test_sim_fixture.h"

#define HANDLES 3u
#define STEPS 1000
#define SEEDS 150

enum kind { LISTENER, LINK, OP, CAPTURE, REGISTRATION, KINDS };

struct storm {
    struct fixture f;
    struct sc_sim_process *corpses[STEPS];
    unsigned corpse_count;
    struct sc_comm_id ids[2];
    uint64_t handles[3][KINDS][HANDLES]; // by the rank that got them, dead or alive
    uint64_t trace;
};

static void mix(struct storm *s, uint64_t value) {
    s->trace = (s->trace ^ value) * UINT64_C(0x100000001B3);
}

static uint64_t draw(struct storm *s, uint64_t bound) {
    return sc_sim_random(s->f.sim) % bound;
}

static unsigned rank_of(const struct storm *s, const struct life *life) {
    return (unsigned)(life - s->f.lives);
}

// Mostly one of that kind and rank, at times any other.
static uint64_t handle_of(struct storm *s, const struct life *life, enum kind kind) {
    uint64_t index = draw(s, HANDLES);

    if (draw(s, 16) == 0) {
        uint64_t rank = draw(s, 3);
        return s->handles[rank][draw(s, KINDS)][index];
    }
    return s->handles[rank_of(s, life)][kind][index];
}

// Keeps what a call handed out, in place of anything.
static void keep(struct storm *s, const struct life *life, enum kind kind, sc_status status,
                 const uint64_t *handle) {
    mix(s, (uint64_t)status);
    if (status == SC_OK)
        s->handles[rank_of(s, life)][kind][draw(s, HANDLES)] = *handle;
}

static void life_and_death(struct storm *s, struct life *life) {
    switch (draw(s, 8)) {
    case 0:
    case 1: sc_sim_pause(life->process); break;
    case 2:
    case 3:
    case 4: sc_sim_resume(life->process); break;
    case 5: sc_sim_heal(s->f.sim); break;
    case 6: sc_sim_timer(life->process, sc_sim_now_ns(s->f.sim) + draw(s, SECOND)); break;
    default: {
        uint32_t rank = rank_of(s, life);
        sc_sim_kill(life->process);
        s->corpses[s->corpse_count++] = life->process;
        spawn(&s->f, life, rank);
        prepare(life);
        break;
    }
    }
}

static void any_fault(struct storm *s) {
    enum sc_sim_fault_kind kind = (enum sc_sim_fault_kind)draw(s, SC_SIM_FAULT_COUNT);
    struct sc_sim_fault fault = {.kind = kind};

    if (kind == SC_SIM_context_lost && draw(s, 4) != 0)
        return; // it leaves a rank with nothing more to do
    fault.a = (uint32_t)draw(s, 4);
    fault.b = (uint32_t)draw(s, 4);
    fault.verb = (enum sc_device_verb)draw(s, SC_DEVICE_VERB_COUNT);
    if (fault.verb == SC_VERB_stream_create || fault.verb == SC_VERB_mem_alloc ||
        fault.verb == SC_VERB_fence_set)
        return; // prepare wants these
    fault.nth = (uint32_t)draw(s, 3);
    if (draw(s, 2) == 0)
        fault.duration_ns = draw(s, SECOND);
    fault.status = SC_DEVICE_ERROR;
    mix(s, inject(&s->f, fault));
}

static void talk(struct storm *s, struct life *life) {
    const struct sc_link *l = life->link;
    uint64_t link = handle_of(s, life, LINK), listener = handle_of(s, life, LISTENER), out = 0;
    char bytes[3000] = {0};
    size_t moved = 0;

    switch (draw(s, 12)) {
    case 0: keep(s, life, LISTENER, l->listen(l->ctx, "any", PORT, &out), &out); break;
    case 1: keep(s, life, LINK, l->dial(l->ctx, "any", PORT, 0, &out), &out); break;
    case 2: keep(s, life, LINK, l->accept(l->ctx, listener, &out), &out); break;
    case 3: l->close(l->ctx, draw(s, 4) == 0 ? listener : link); break;
    case 4: mix(s, (uint64_t)l->connected(l->ctx, link)); break;
    case 5:
    case 6:
    case 7: mix(s, (uint64_t)l->recv(l->ctx, link, bytes, 1 + draw(s, 3000), &moved)); break;
    default: mix(s, (uint64_t)l->send(l->ctx, link, bytes, 1 + draw(s, 3000), &moved)); break;
    }
    mix(s, moved);
}

static void collective(struct storm *s, struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t comm = draw(s, 16) == 0 ? handle_of(s, life, OP) : life->comm;
    uint64_t bytes = draw(s, 3) == 0 ? 16 : 32;
    uint32_t peer = (uint32_t)draw(s, 3);

    switch (draw(s, 9)) {
    case 0: mix(s, (uint64_t)d->group_begin(d->ctx)); break;
    case 1:
    case 2: mix(s, (uint64_t)d->group_end(d->ctx)); break;
    case 3: mix(s, (uint64_t)d->send(d->ctx, comm, life->buf, bytes, peer, life->stream)); break;
    case 4: mix(s, (uint64_t)d->recv(d->ctx, comm, life->buf, bytes, peer, life->stream)); break;
    case 5: mix(s, (uint64_t)d->broadcast(d->ctx, comm, life->buf, 32, peer, life->stream)); break;
    case 6:
        mix(s, (uint64_t)d->all_gather(d->ctx, comm, life->buf, life->scratch, 16, life->stream));
        break;
    case 7:
        mix(s,
            (uint64_t)d->reduce_scatter(d->ctx, comm, life->buf, life->scratch, 16, life->stream));
        break;
    default: mix(s, (uint64_t)d->all_reduce(d->ctx, comm, life->buf, bytes, life->stream)); break;
    }
}

static void work(struct storm *s, struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t op = handle_of(s, life, OP), capture = handle_of(s, life, CAPTURE), out = 0;
    enum sc_op_state op_state_now = SC_OP_ENQUEUED;

    switch (draw(s, 14)) {
    case 0: keep(s, life, OP, d->op_begin(d->ctx, life->stream, &out), &out); break;
    case 1: mix(s, (uint64_t)d->op_end(d->ctx, op)); break;
    case 2: mix(s, (uint64_t)d->op_poll(d->ctx, op, &op_state_now)); break;
    case 3: mix(s, (uint64_t)d->op_release(d->ctx, op)); break;
    case 4: mix(s, (uint64_t)d->stream_wait(d->ctx, life->stream, op)); break;
    case 5: keep(s, life, CAPTURE, d->capture_begin(d->ctx, life->stream, &out), &out); break;
    case 6:
    case 7: mix(s, (uint64_t)d->capture_end(d->ctx, capture)); break;
    case 8: mix(s, (uint64_t)d->capture_release(d->ctx, capture)); break;
    case 9:
        keep(s, life, OP, d->replay_begin(d->ctx, capture, life->stream, EPOCH, &out), &out);
        break;
    case 10: mix(s, (uint64_t)sc_sim_graph_launch(life->process, capture, life->stream)); break;
    case 11: mix(s, (uint64_t)d->replay_end(d->ctx, op)); break;
    case 12:
        mix(s, (uint64_t)sc_sim_compute(life->process, life->stream, draw(s, MS), NULL, NULL));
        break;
    default:
        mix(s, (uint64_t)d->add_bf16(d->ctx, life->buf, life->scratch, 32, EPOCH, life->stream));
        break;
    }
    mix(s, (uint64_t)op_state_now);
}

static void communicate(struct storm *s, struct life *life) {
    const struct sc_device *d = life->device;
    uint32_t rank = rank_of(s, life);
    uint64_t out = 0;
    struct sc_comm_report report = {.state = SC_COMM_FORMING};
    uint32_t held = 0;

    switch (draw(s, 10)) {
    case 0: mix(s, (uint64_t)d->comm_id(d->ctx, &s->ids[draw(s, 2)])); break;
    case 1:
    case 2:
    case 3: mix(s, (uint64_t)create_comm(life, s->ids[draw(s, 2)], rank, 2)); break;
    case 4:
    case 5: mix(s, (uint64_t)d->comm_poll(d->ctx, life->comm, &report)); break;
    case 6: mix(s, (uint64_t)d->comm_abort(d->ctx, life->comm)); break;
    case 7: mix(s, (uint64_t)d->comm_abandon(d->ctx, life->comm)); break;
    case 8:
        keep(s, life, REGISTRATION, d->buf_register(d->ctx, life->comm, life->buf, 32, &out), &out);
        break;
    default: mix(s, (uint64_t)d->captures_held(d->ctx, life->comm, &held)); break;
    }
    mix(s, (uint64_t)report.state + held);
}

static void recreate(struct storm *s, struct life *life) {
    const struct sc_device *d = life->device;
    uint64_t out = 0;

    switch (draw(s, 4)) {
    case 0:
        mix(s, (uint64_t)d->stream_destroy(d->ctx, life->stream));
        mix(s, (uint64_t)d->stream_create(d->ctx, &out));
        life->stream = out;
        break;
    case 1:
        mix(s, (uint64_t)d->mem_free(d->ctx, life->buf));
        mix(s, (uint64_t)d->mem_alloc(d->ctx, BYTES, &out));
        life->buf = out;
        break;
    case 2:
        mix(s, (uint64_t)d->buf_deregister(d->ctx, life->comm, handle_of(s, life, REGISTRATION)));
        break;
    default: mix(s, (uint64_t)d->fence_set(d->ctx, draw(s, 2) * EPOCH)); break;
    }
}

static uint64_t storm(uint64_t seed) {
    struct storm storm, *s = &storm;
    struct sc_sim_held held;

    memset(s, 0, sizeof *s);
    start(&s->f, seed, 3);
    for (int rank = 0; rank < 3; rank++)
        prepare(&s->f.lives[rank]);
    s->ids[0] = draw_id(&s->f.lives[0]);
    for (int step = 0; step < STEPS; step++) {
        struct life *life = &s->f.lives[draw(s, 3)];
        uint64_t what = draw(s, 32);
        if (what == 0)
            life_and_death(s, life);
        else if (what == 1)
            any_fault(s);
        else if (what < 8)
            talk(s, life);
        else if (what < 15)
            collective(s, life);
        else if (what < 23)
            work(s, life);
        else if (what < 28)
            communicate(s, life);
        else if (what == 28)
            recreate(s, life);
        else
            run_for(&s->f, draw(s, what == 29 ? SECOND : MS));
        mix(s, s->f.violations);
        mix(s, life->wakes);
    }
    run_for(&s->f, 100 * SECOND);
    for (unsigned at = 0; at < s->corpse_count; at++) {
        sc_sim_held(s->corpses[at], &held);
        assert_int_equal(held.links + held.streams + held.ops + held.communicators, 0);
        sc_sim_reap(s->corpses[at]);
    }
    mix(s, sc_sim_now_ns(s->f.sim));
    mix(s, sc_sim_random(s->f.sim));
    sc_sim_destroy(s->f.sim);
    return s->trace;
}

static void world_bears_any_calls_the_same_way_twice(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        if (storm(seed) != storm(seed))
            fail_msg("seed %llu gives two traces", (unsigned long long)seed);
    }
    assert_true(storm(1) != storm(2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(world_bears_any_calls_the_same_way_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
