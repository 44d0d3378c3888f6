// SPDX-License-Identifier: AGPL-3.0-only
//
// For tests of the public calls: every handle that such a program opens is in a world of real sockets,
// the real clock, real threads, and an instant device that can be told to go wrong.
//
// The ranks of a job are handles of this one process. What is waited for has a limit, and nothing
// sleeps to be right: api_until looks again and again, api_until_waiting counts the calls that wait.
#ifndef SC_TESTS_SUPPORT_API_WORLD_H
#define SC_TESTS_SUPPORT_API_WORLD_H

#include "core/assert.h"
#include "core/spark_comm.h"
#include "tests/support/instant_device.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define API_MS UINT64_C(1000000)
#define API_SECOND (1000 * API_MS)
#define API_LIMIT_NS (20 * API_SECOND) // for what must come, on however slow a machine
#define API_CAPACITY_BYTES 65536u
#define API_HOST "127.0.0.1"

// How the handles opened from now on are born; api_job_begin sets the defaults, all false.
struct api_birth {
    bool environment; // it may override tunables
    bool allocs_fail;
};
extern struct api_birth api_birth;

uint64_t api_now(void);
void api_miss(const char *condition, const char *file, int line);

// Looks until the condition holds; fails the test when it does not within API_LIMIT_NS.
#define api_until(condition)                                                                       \
    for (const uint64_t api_until_ns = api_now() + API_LIMIT_NS; !(condition); sched_yield()) {    \
        if (api_now() >= api_until_ns)                                                             \
            api_miss(#condition, __FILE__, __LINE__);                                              \
    }

#define api_ok(call) assert_string_equal((call) == SC_OK ? "" : sc_last_error(), "")

// ---- a job ----

struct api_job {
    uint32_t world;
    uint16_t port; // reserved
    int reserved_fd;
    const void *key; // for handles opened from now on; NULL: none
    uint32_t descriptors, threads;
};

// Reserves a port, and counts what the process has.
void api_job_begin(struct api_job *job, uint32_t world);
// Demands that every descriptor and every thread is gone, which may take a moment.
void api_job_end(struct api_job *job);

// Production defaults for that rank.
void api_config(const struct api_job *job, uint32_t rank, struct sc_config *config);
sc_comm api_open(const struct api_job *job, uint32_t rank);
sc_comm api_open_with(const struct sc_config *config); // it must open
// Waits until that handle is READY in another epoch than `before`, and returns the epoch.
uint64_t api_ready_after(sc_comm comm, uint64_t before);
// Opens all ranks of the job and waits until they are READY; returns their epoch.
uint64_t api_open_all(const struct api_job *job, sc_comm *comms);
// Closes for good, one after the other; each must say OK.
void api_close_all(sc_comm *comms, uint32_t count);
void api_close(sc_comm comm);
void api_kill(sc_comm comm); // as it stands: its sockets end, nobody is told

struct sc_health_report api_health(sc_comm comm);
struct sc_instant_switches *api_switches(sc_comm comm); // of the handle's device
void *api_stream(uint32_t number);                      // any one; the device knows them all
sc_status api_submit(sc_comm comm, uint64_t epoch);     // a small all_reduce on api_stream(0)

// ---- calls that wait ----

// How many calls wait in this handle at this moment.
uint32_t api_waiting(sc_comm comm);
#define api_until_waiting(comm, count) api_until(api_waiting(comm) == (count))

enum api_verb {
    API_WAIT_READY,
    API_SYNC,
    API_BARRIER,
    API_COMMAND_SEND,
    API_COMMAND_RECV,
    API_SUBMIT,
    API_RECONNECT,
    API_CLOSE,
    API_REPLAY_BEGIN,
    API_VERBS
};

// One call on a thread of its own.
struct api_call {
    enum api_verb verb;
    sc_comm comm;
    uint64_t epoch;
    uint64_t timeout_ns; // 0: SC_FOREVER
    sc_capture capture;
    pthread_barrier_t *start; // waited for first; NULL: none

    sc_status status;
    uint64_t ended_ns;
    char error[640]; // what sc_last_error said
    pthread_t thread;
};

void api_call_begin(struct api_call *call);
// Waits for its end, and returns its status.
sc_status api_call_end(struct api_call *call);

// ---- notes ----

// Everything that a handle's on_note heard, in order; under its own lock.
struct api_notes {
    pthread_mutex_t lock;
    uint32_t count;
    struct {
        struct sc_note note;
        char text[256];
        pthread_t thread;
    } list[256];
};

void api_notes_begin(struct api_notes *notes);
void api_on_note(void *notes, const struct sc_note *note); // for config.on_note
uint32_t api_notes_of(struct api_notes *notes, enum sc_note_kind kind);
// Whether one of that kind says these words.
bool api_notes_say(struct api_notes *notes, enum sc_note_kind kind, const char *words);

#endif
