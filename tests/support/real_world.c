// SPDX-License-Identifier: AGPL-3.0-only
//
// The world below the public calls, and the calls of a test's main thread.
#include "tests/support/real_world.h"

#include "core/api_inside.h"
#include "hal/posix.h"
#include "tests/support/sockets_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_NS 200000u

struct real_birth real_birth;

// ---- the world ----

struct own {
    struct own *next;
    struct sc_posix *posix;
    struct sc_instant_device *instant;
    struct sc_shared_device *shared; // the instant one, for many threads
    struct sc_device device;
    sc_comm comm; // 0: not open yet
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own *first;

static void destroy(struct own *own) {
    sc_posix_destroy(own->posix);
    sc_shared_device_destroy(own->shared);
    sc_instant_device_destroy(own->instant);
    free(own);
}

static void on_release(void *owner) {
    pthread_mutex_lock(&lock);
    struct own **link = &first;
    while (*link != owner)
        link = &(*link)->next;
    *link = (*link)->next;
    pthread_mutex_unlock(&lock);
    destroy(owner);
}

static void on_opened(void *owner, sc_comm comm) {
    pthread_mutex_lock(&lock);
    ((struct own *)owner)->comm = comm;
    pthread_mutex_unlock(&lock);
}

sc_status sc_choose_world(const struct sc_config *config, struct sc_world *out, char *why,
                          size_t why_bytes) {
    struct own *own = calloc(1, sizeof *own);
    (void)config;
    SC_ASSERT(own != NULL);
    if (sc_posix_create(&own->posix) != SC_OK || sc_instant_device_create(&own->instant) != SC_OK ||
        sc_shared_device_create(sc_instant_device_table(own->instant), &own->shared) != SC_OK) {
        snprintf(why, why_bytes, "a world for a test: no memory, or no descriptors");
        destroy(own);
        return SC_NO_MEMORY;
    }
    sc_instant_device_switches(own->instant)->allocs_fail = real_birth.allocs_fail;
    own->device = *sc_shared_device_table(own->shared);
    own->device.poll_ns = POLL_NS;
    pthread_mutex_lock(&lock);
    own->next = first;
    first = own;
    pthread_mutex_unlock(&lock);
    *out = (struct sc_world){.host = sc_posix_host(own->posix),
                             .link = sc_posix_link(own->posix),
                             .device = &own->device,
                             .environment = real_birth.environment,
                             .remarks = real_birth.remarks,
                             .opened = on_opened,
                             .release = on_release,
                             .owner = own};
    return SC_OK;
}

static struct own *find(sc_comm comm) {
    pthread_mutex_lock(&lock);
    struct own *own = first;
    while (own != NULL && own->comm != comm)
        own = own->next;
    SC_ASSERT(own != NULL);
    pthread_mutex_unlock(&lock);
    return own;
}

struct sc_instant_switches *real_switches(sc_comm comm) {
    return sc_instant_device_switches(find(comm)->instant);
}

struct sc_shared_device *real_shared(sc_comm comm) {
    return find(comm)->shared;
}

// ---- the process ----

uint64_t real_now(void) {
    return sockets_now();
}

void real_miss(const char *condition, const char *file, int line) {
    print_error("not within %.0f s: %s\n", (double)REAL_LIMIT_NS / 1e9, condition);
    _fail(file, line);
}

static void *nothing(void *arg) {
    return arg;
}

// ---- a job ----

void real_job_begin(struct real_job *job, uint32_t world) {
    pthread_t thread;
    memset(job, 0, sizeof *job);
    real_birth = (struct real_birth){.environment = false};
    // A sanitizer may start a thread of its own with the first one.
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    job->descriptors = sockets_descriptors();
    job->world = world;
    job->port = sockets_reserve(REAL_HOST, &job->reserved_fd);
    assert_int_not_equal(job->port, 0);
    job->threads = sockets_threads();
}

void real_job_end(struct real_job *job) {
    close(job->reserved_fd);
    real_until(sockets_descriptors() == job->descriptors);
    real_until(sockets_threads() <= job->threads); // one that was joined may still be listed
}

void real_config(const struct real_job *job, uint32_t rank, struct sc_config *config) {
    sc_config_init(config, sizeof *config);
    config->rank = rank;
    config->world = job->world;
    config->master_host = REAL_HOST;
    config->master_port = job->port;
    config->capacity_bytes = REAL_CAPACITY_BYTES;
    config->key = job->key;
}

sc_comm real_open_with(const struct sc_config *config) {
    sc_comm comm = 0;
    real_ok(sc_open(config, &comm));
    assert_int_not_equal(comm, 0);
    return comm;
}

sc_comm real_open(const struct real_job *job, uint32_t rank) {
    struct sc_config config;
    real_config(job, rank, &config);
    return real_open_with(&config);
}

uint64_t real_ready_after(sc_comm comm, uint64_t before) {
    const uint64_t until_ns = real_now() + REAL_LIMIT_NS;
    struct sc_recovery recovery = {.size = sizeof recovery, .epoch = before};
    while (recovery.epoch == before) {
        if (real_now() >= until_ns)
            real_miss("another epoch", __FILE__, __LINE__);
        real_ok(sc_wait_ready(comm, REAL_LIMIT_NS, &recovery));
    }
    return recovery.epoch;
}

uint64_t real_open_all(const struct real_job *job, sc_comm *comms) {
    uint64_t epoch = 0;
    for (uint32_t rank = 0; rank < job->world; rank++)
        comms[rank] = real_open(job, rank);
    for (uint32_t rank = 0; rank < job->world; rank++)
        epoch = real_ready_after(comms[rank], 0);
    return epoch;
}

void real_close(sc_comm comm) {
    real_ok(sc_close(comm, SC_CLOSE_FINAL, REAL_LIMIT_NS));
}

void real_kill(sc_comm comm) {
    sc_api_abandon(comm);
}

void real_close_all(sc_comm *comms, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        real_close(comms[i]);
}

uint64_t real_live(sc_comm comm) {
    return __atomic_load_n(sc_live_epoch(comm), __ATOMIC_ACQUIRE);
}

struct sc_health_report real_health(sc_comm comm) {
    struct sc_health_report report = {.size = sizeof report};
    real_ok(sc_health(comm, &report));
    return report;
}

void *real_stream(uint32_t number) {
    static char streams[64];
    SC_ASSERT(number < sizeof streams);
    return &streams[number];
}

sc_status real_submit(sc_comm comm, uint64_t epoch) {
    static _Alignas(16) char buffer[4096]; // the device moves no data
    return sc_all_reduce(comm, epoch, buffer, sizeof buffer, SC_BF16, real_stream(0));
}

// ---- calls that wait ----

// A call that is counted, while another thread is inside the monitor, waits in it.
uint32_t real_waiting(sc_comm comm) {
    uint32_t slot, count;
    sc_status status;
    struct sc_api *api = sc_table_hold(comm, &slot, &status);
    if (api == NULL)
        return 0;
    SC_ASSERT(api->host->enter(api->host->ctx) == SC_OK);
    count = api->ended ? 0 : api->callers;
    api->host->leave(api->host->ctx);
    sc_table_release(slot);
    return count;
}

static sc_status perform(struct real_call *call, uint64_t timeout_ns) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    char data[64] = {0};
    uint32_t bytes;
    sc_status status;
    switch (call->verb) {
    case REAL_WAIT_READY: return sc_wait_ready(call->comm, timeout_ns, &recovery);
    case REAL_SYNC:
        return sc_sync(call->comm, call->epoch, real_stream(0), SC_SYNC_LOCAL, timeout_ns);
    case REAL_BARRIER: return sc_barrier(call->comm, call->epoch, timeout_ns);
    case REAL_COMMAND_SEND:
        return sc_command_send(call->comm, call->epoch, data, sizeof data, timeout_ns);
    case REAL_COMMAND_RECV:
        return sc_command_recv(call->comm, call->epoch, data, sizeof data, &bytes, timeout_ns);
    case REAL_SUBMIT: return real_submit(call->comm, call->epoch);
    case REAL_RECONNECT: return sc_reconnect(call->comm, call->epoch, 7);
    case REAL_CLOSE: return sc_close(call->comm, SC_CLOSE_FINAL, timeout_ns);
    case REAL_REPLAY:
        status = sc_replay_begin(call->comm, call->epoch, call->capture, real_stream(0));
        return status == SC_OK ? sc_replay_end(call->comm) : status;
    case REAL_VERBS: break;
    }
    SC_ASSERT(false);
}

static void *run(void *arg) {
    struct real_call *call = arg;
    if (call->start != NULL)
        (void)pthread_barrier_wait(call->start);
    call->status = perform(call, call->timeout_ns != 0 ? call->timeout_ns : SC_FOREVER);
    call->ended_ns = real_now();
    snprintf(call->error, sizeof call->error, "%s", sc_last_error());
    return NULL;
}

void real_call_begin(struct real_call *call) {
    assert_int_equal(pthread_create(&call->thread, NULL, run, call), 0);
}

sc_status real_call_end(struct real_call *call) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(REAL_LIMIT_NS / REAL_SECOND);
    if (pthread_timedjoin_np(call->thread, NULL, &until) != 0)
        real_miss("the call returns", __FILE__, __LINE__);
    return call->status;
}

uint32_t real_answers(sc_comm comm, uint64_t epoch, sc_status answers[REAL_ANSWERS_MAX]) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    struct sc_health_report report = {.size = sizeof report};
    uint8_t byte;
    uint32_t bytes;
    int fd;
    void *memory;
    sc_ticket ticket;
    sc_capture capture;
    const sc_status list[] = {
        sc_join(comm),
        sc_wait_ready(comm, SC_FOREVER, &recovery),
        sc_reconnect(comm, epoch, 0),
        sc_close(comm, SC_CLOSE_FINAL, SC_FOREVER),
        sc_buffer_register(comm, &byte, 1),
        sc_buffer_deregister(comm, &byte),
        sc_mem_alloc(comm, 16, &memory),
        sc_mem_free(comm, NULL),
        real_submit(comm, epoch),
        sc_all_reduce_start(comm, epoch, NULL, 0, SC_BF16, NULL, &ticket),
        sc_all_reduce_join(comm, epoch, 1, NULL),
        sc_all_reduce_async(comm, epoch, NULL, 0, SC_BF16, NULL),
        sc_broadcast(comm, epoch, NULL, 0, 0, NULL),
        sc_all_gather(comm, epoch, NULL, NULL, 0, NULL),
        sc_reduce_scatter(comm, epoch, NULL, NULL, 0, SC_BF16, NULL),
        sc_send(comm, epoch, NULL, 0, 0, NULL),
        sc_recv(comm, epoch, NULL, 0, 0, NULL),
        sc_group_begin(comm, epoch),
        sc_group_end(comm),
        sc_sync(comm, epoch, NULL, SC_SYNC_LOCAL, SC_FOREVER),
        sc_test(comm, epoch, NULL),
        sc_capture_begin(comm, epoch, NULL, &capture),
        sc_capture_end(comm, 1),
        sc_capture_release(comm, 1),
        sc_replay_begin(comm, epoch, 1, NULL),
        sc_replay_end(comm),
        sc_barrier(comm, epoch, SC_FOREVER),
        sc_command_send(comm, epoch, NULL, 0, SC_FOREVER),
        sc_command_recv(comm, epoch, NULL, 0, &bytes, SC_FOREVER),
        sc_mark(comm, epoch, 1),
        sc_health(comm, &report),
        sc_event_fd(comm, &fd),
    };
    SC_ASSERT(sizeof list <= REAL_ANSWERS_MAX * sizeof list[0]);
    memcpy(answers, list, sizeof list);
    return sizeof list / sizeof list[0];
}

// ---- notes ----

void real_notes_begin(struct real_notes *notes) {
    memset(notes, 0, sizeof *notes);
    pthread_mutex_init(&notes->lock, NULL);
}

void real_on_note(void *arg, const struct sc_note *note) {
    struct real_notes *notes = arg;
    pthread_mutex_lock(&notes->lock);
    SC_ASSERT(notes->count < sizeof notes->list / sizeof notes->list[0]);
    notes->list[notes->count].note = *note;
    notes->list[notes->count].thread = pthread_self();
    SC_ASSERT(pthread_getname_np(pthread_self(), notes->list[notes->count].thread_name,
                                 sizeof notes->list[0].thread_name) == 0);
    snprintf(notes->list[notes->count].text, sizeof notes->list[0].text, "%s", note->text);
    notes->count++;
    pthread_mutex_unlock(&notes->lock);
}

static uint32_t count(struct real_notes *notes, enum sc_note_kind kind, const char *words) {
    uint32_t found = 0;
    pthread_mutex_lock(&notes->lock);
    for (uint32_t i = 0; i < notes->count; i++)
        found += notes->list[i].note.kind == kind && strstr(notes->list[i].text, words) != NULL;
    pthread_mutex_unlock(&notes->lock);
    return found;
}

uint32_t real_notes_of(struct real_notes *notes, enum sc_note_kind kind) {
    return count(notes, kind, "");
}

bool real_notes_say(struct real_notes *notes, enum sc_note_kind kind, const char *words) {
    return count(notes, kind, words) != 0;
}
