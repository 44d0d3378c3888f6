// SPDX-License-Identifier: AGPL-3.0-only
//
// The cycles of "bench recover". A supervisor of real processes: it strikes one of them, starts another
// in its place where that is what a supervisor would do, and takes the times of what follows.
#include "cli/gpu/recover.h"

#include "cli/options.h"
#include "cli/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define OPEN_NS (60000 * MS)
#define RECOVER_NS (60000 * MS)
#define COUNT_NS (10000 * MS)
#define REST_MIN_NS (200 * MS)
#define REST_SPAN_NS (300 * MS)

// The process in the place of the one that was struck; all 0 where it lives on.
struct newcomer {
    uint64_t started_ns, opened_ns, joined_ns;
};

struct recover {
    const struct sc_recover_request *request;
    struct sc_recover_world world;
    struct sc_recover_result result;
    uint64_t random;
};

// Strikes fall anywhere within a step, and in every run at the same places as far as we can tell.
static uint64_t draw(struct recover *r, uint64_t below) {
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (r->random >> 33) % below;
}

// ---- one cycle ----------------------------------------------------------------------------------

static bool strike(struct recover *r) {
    uint32_t victim = (uint32_t)r->request->victim;
    struct sc_recover_member *m = &r->world.members[victim];

    switch (r->request->how) {
    case SC_RECOVER_KILL: return kill(m->child.pid, SIGKILL) == 0;
    case SC_RECOVER_STOP: return kill(m->child.pid, SIGSTOP) == 0;
    case SC_RECOVER_RESET: return sc_recover_world_order(&r->world, victim, SC_ORDER_CUT_LINK);
    case SC_RECOVER_ASYNC: return sc_recover_world_order(&r->world, victim, SC_ORDER_CUT_DATA);
    case SC_RECOVER_HOWS: break;
    }
    return false;
}

// From now on the struck process is not listened to. One that was killed is not waited for either: it
// may take its time to give back what it has of the GPU, and a supervisor would not wait for that.
static void put_aside(struct recover *r) {
    struct sc_recover_member *m = &r->world.members[r->request->victim];
    m->former = m->child;
    m->child.pid = 0;
}

// Starts the newcomer, and lets it join when its GPU and its memory are there and it has "loaded".
static bool replace(struct recover *r, struct newcomer *newcomer) {
    uint32_t victim = (uint32_t)r->request->victim;
    newcomer->started_ns = sc_report_now_ns();
    if (!sc_recover_world_start(&r->world, victim) ||
        !sc_recover_world_await(&r->world, SC_SAID_OPENED, 1u << victim, OPEN_NS) ||
        !sc_recover_world_hear(&r->world, r->request->load_ms * MS))
        return false;
    newcomer->opened_ns = r->world.members[victim].of[SC_SAID_OPENED].at_ns;
    newcomer->joined_ns = sc_report_now_ns();
    return sc_recover_world_order(&r->world, victim, SC_ORDER_JOIN);
}

// Whether the record that came with the next epoch says what was done, and to whom.
static bool is_right(const struct recover *r, uint32_t code, uint32_t suspect) {
    uint32_t victim = (uint32_t)r->request->victim;

    switch (r->request->how) {
    case SC_RECOVER_KILL: return code == SC_PEER_DEAD && suspect == victim;
    case SC_RECOVER_STOP: return code == SC_PEER_SILENT && suspect == victim;
    case SC_RECOVER_RESET: // the victim may be back on a new link before the end of the old is seen
        return (code == SC_PEER_DEAD || code == SC_LINK_LOST || code == SC_PEER_ABORTED) &&
               suspect == victim;
    case SC_RECOVER_ASYNC: return code == SC_ASYNC_ERROR;
    case SC_RECOVER_HOWS: break;
    }
    return false;
}

static void take_times(struct recover *r, struct sc_recover_cycle *cycle, uint64_t struck_ns,
                       const struct newcomer *newcomer) {
    const struct sc_recover_member *survivor = &r->world.members[r->result.survivor];
    const struct sc_recover_word *left = &survivor->of[SC_SAID_LEFT];
    const struct sc_recover_word *ready = &survivor->of[SC_SAID_READY];
    uint64_t first_ns = 0;

    for (uint32_t i = 0; i < r->world.start.world; i++) {
        uint64_t at_ns = r->world.members[i].of[SC_SAID_FIRST].at_ns;
        first_ns = at_ns > first_ns ? at_ns : first_ns;
    }
    const struct sc_phases *phases = &ready->phases;
    const uint64_t times[SC_TIMES] = {
        [SC_TIME_DETECT] = left->at_ns - struck_ns,
        [SC_TIME_AGREE] = phases->agree_ns,
        [SC_TIME_ABORT] = phases->abort_ns,
        [SC_TIME_WAIT] = phases->wait_ns,
        [SC_TIME_FORM] = phases->form_ns,
        [SC_TIME_WARM_UP] = phases->warmup_ns,
        [SC_TIME_FIRST] = survivor->of[SC_SAID_FIRST].at_ns - ready->at_ns,
        [SC_TIME_OPEN] = newcomer->opened_ns - newcomer->started_ns,
        [SC_TIME_JOIN] = newcomer->joined_ns != 0 ? first_ns - newcomer->joined_ns : 0,
        [SC_TIME_WHOLE] = first_ns - struck_ns,
    };
    memcpy(cycle->times, times, sizeof times);
    cycle->heard_ns = survivor->left_heard_ns - struck_ns;
    cycle->code = ready->code;
    cycle->suspect = ready->suspect;
    cycle->right = is_right(r, ready->code, ready->suspect);
}

static uint64_t rest_ns(struct recover *r) {
    uint64_t given_ns = r->request->rest_ms * MS;
    return given_ns != 0 ? given_ns : REST_MIN_NS + draw(r, REST_SPAN_NS);
}

// Rests, so that whatever a recovery left behind has gone, then counts.
static bool rest_and_count(struct recover *r, struct sc_recover_cycle *cycle) {
    uint32_t survivor = r->result.survivor;
    if (!sc_recover_world_rest(&r->world, rest_ns(r)) ||
        !sc_recover_world_order(&r->world, survivor, SC_ORDER_COUNT) ||
        !sc_recover_world_await(&r->world, SC_SAID_COUNTED, 1u << survivor, COUNT_NS))
        return false;
    const struct sc_recover_word *word = &r->world.members[survivor].of[SC_SAID_COUNTED];
    cycle->counts = word->counts;
    cycle->device_bytes = word->device_bytes;
    return true;
}

static bool play_cycle(struct recover *r, struct sc_recover_cycle *cycle) {
    struct sc_recover_world *w = &r->world;
    bool replaces = sc_recover_replaces(r->request->how);
    struct newcomer newcomer = {0};

    if (!sc_recover_world_rest(w, draw(r, 20 * MS)))
        return false;
    sc_recover_world_forget(w);
    uint64_t struck_ns = sc_report_now_ns();
    if (!strike(r))
        return false;
    if (replaces)
        put_aside(r);
    if (!sc_recover_world_await(w, SC_SAID_LEFT, 1u << r->result.survivor, RECOVER_NS))
        return false;
    if (replaces && !replace(r, &newcomer))
        return false;
    if (!sc_recover_world_await(w, SC_SAID_FIRST, SC_ALL_RANKS, RECOVER_NS))
        return false;
    take_times(r, cycle, struck_ns, &newcomer);
    sc_child_end(&w->members[r->request->victim].former);
    sc_recover_world_forget(w);
    return rest_and_count(r, cycle);
}

// ---- all of them --------------------------------------------------------------------------------

static bool begin(struct recover *r) {
    struct sc_recover_world *w = &r->world;
    bool ok = true;

    for (uint32_t rank = 0; rank < w->start.world && ok; rank++)
        ok = sc_recover_world_start(w, rank);
    return ok && sc_recover_world_await(w, SC_SAID_OPENED, SC_ALL_RANKS, OPEN_NS);
}

static bool play(struct recover *r) {
    struct sc_recover_world *w = &r->world;
    bool ok = true;

    for (uint32_t rank = 0; rank < w->start.world && ok; rank++)
        ok = sc_recover_world_order(w, rank, SC_ORDER_JOIN);
    ok = ok && sc_recover_world_await(w, SC_SAID_FIRST, SC_ALL_RANKS, RECOVER_NS);
    while (ok && r->result.done < r->request->cycles) {
        ok = play_cycle(r, &r->result.cycles[r->result.done]);
        if (ok)
            sc_recover_tell_cycle(&r->result, r->result.done++);
    }
    return ok;
}

static bool all_right(const struct sc_recover_result *result) {
    for (uint64_t i = 0; i < result->done; i++)
        if (!result->cycles[i].right)
            return false;
    return result->done == result->request->cycles;
}

static int play_and_tell(struct recover *r) {
    bool well = play(r);
    sc_recover_world_end(&r->world, well);
    if (!well)
        fprintf(stderr, "spark-comm: bench recover: cycle %llu: %s\n",
                (unsigned long long)r->result.done + 1, r->world.why);
    sc_recover_tell(&r->result);
    well = well && all_right(&r->result) && sc_recover_is_level(&r->result);
    if (r->request->json != NULL && !sc_recover_write(&r->result, well))
        well = false;
    return sc_report_end(well ? EXIT_SUCCESS : EXIT_FAILURE);
}

int sc_recover_play(const struct sc_recover_request *request) {
    static struct recover r;
    uint32_t port = sc_child_free_port();

    r.request = request;
    r.random = 1;
    r.world.start =
        (struct sc_recover_start){.world = (uint32_t)request->gpus,
                                  .port = port,
                                  .layers = request->model.moe_layers,
                                  .hidden_size = request->model.hidden_size,
                                  .graph = request->graph,
                                  .device = request->shared ? (int32_t)request->device : -1};
    r.result =
        (struct sc_recover_result){.request = request,
                                   .survivor = request->victim == 0 ? 1 : 0,
                                   .cycles = calloc(request->cycles, sizeof *r.result.cycles),
                                   .why = r.world.why};
    if (port == 0 || r.result.cycles == NULL)
        return EXIT_FAILURE;
    if (request->sockets || request->shared || request->how == SC_RECOVER_ASYNC)
        sc_child_keep_to_sockets();
    sc_child_keep_ras_off();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int result = SC_EXIT_USAGE;
    if (begin(&r)) {
        r.result.opened = r.world.members[r.result.survivor].of[SC_SAID_OPENED];
        result = play_and_tell(&r);
    } else {
        fprintf(stderr, "spark-comm: bench recover: %s\n", r.world.why);
        sc_recover_world_end(&r.world, false);
    }
    free(r.result.cycles);
    return result;
}
