// SPDX-License-Identifier: AGPL-3.0-only
//
// For tests of the public calls: every handle that such a program opens is in a world of real sockets,
// the real clock, real threads, and an instant device that can be told to go wrong.
//
// The ranks of a job are handles of this one process. What is waited for has a limit, and nothing
// sleeps to be right: real_until looks again and again, real_until_waiting counts the calls that wait.
#ifndef SC_TESTS_SUPPORT_REAL_WORLD_H
#define SC_TESTS_SUPPORT_REAL_WORLD_H

#include "core/assert.h"
#include "core/spark_comm.h"
#include "hal/choose.h"
#include "tests/support/instant_device.h"
#include "tests/support/shared_device.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define REAL_MS UINT64_C(1000000)
#define REAL_SECOND (1000 * REAL_MS)
#define REAL_LIMIT_NS (20 * REAL_SECOND) // for what must come, on however slow a machine
#define REAL_CAPACITY_BYTES 65536u
#define REAL_HOST "127.0.0.1"

// How the handles opened from now on are born; real_job_begin sets the defaults: all
// false or NULL.
struct real_birth {
    bool environment; // it may override tunables
    bool allocs_fail;
    void (*remarks)(void *owner, sc_remark *remark, void *arg); // of the world
};
extern struct real_birth real_birth;

uint64_t real_now(void);
void real_miss(const char *condition, const char *file, int line);

// Looks until the condition holds; fails the test when it does not within REAL_LIMIT_NS.
#define real_until(condition)                                                                      \
    for (const uint64_t real_until_ns = real_now() + REAL_LIMIT_NS; !(condition); sched_yield()) { \
        if (real_now() >= real_until_ns)                                                           \
            real_miss(#condition, __FILE__, __LINE__);                                             \
    }

#define real_ok(call) assert_string_equal((call) == SC_OK ? "" : sc_last_error(), "")

// ---- a job ----

struct real_job {
    uint32_t world;
    uint16_t port; // reserved
    int reserved_fd;
    const void *key; // for handles opened from now on; NULL: none
    uint32_t descriptors, threads;
};

// Reserves a port, and counts what the process has.
void real_job_begin(struct real_job *job, uint32_t world);
// Demands that every descriptor and every thread is gone, which may take a moment.
void real_job_end(struct real_job *job);

// Production defaults for that rank.
void real_config(const struct real_job *job, uint32_t rank, struct sc_config *config);
sc_comm real_open(const struct real_job *job, uint32_t rank);
sc_comm real_open_with(const struct sc_config *config); // it must open
// Waits until that handle is READY in another epoch than `before`, and returns the epoch.
uint64_t real_ready_after(sc_comm comm, uint64_t before);
// Opens all ranks of the job and waits until they are READY; returns their epoch.
uint64_t real_open_all(const struct real_job *job, sc_comm *comms);
// Closes for good, one after the other; each must say OK.
void real_close_all(sc_comm *comms, uint32_t count);
void real_close(sc_comm comm);
void real_kill(sc_comm comm); // as it stands: its sockets end, nobody is told

uint64_t real_live(sc_comm comm); // the word of sc_live_epoch
struct sc_health_report real_health(sc_comm comm);
struct sc_instant_switches *real_switches(sc_comm comm); // of the handle's device
struct sc_shared_device *real_shared(sc_comm comm);      // likewise
void *real_stream(uint32_t number);                      // any one; the device knows them all
sc_status real_submit(sc_comm comm, uint64_t epoch);     // a small all_reduce on real_stream(0)

// ---- calls that wait ----

// How many calls wait in this handle at this moment, or are in its device.
uint32_t real_waiting(sc_comm comm);
#define real_until_waiting(comm, count) real_until(real_waiting(comm) == (count))

enum real_verb {
    REAL_WAIT_READY,
    REAL_SYNC,
    REAL_BARRIER,
    REAL_COMMAND_SEND,
    REAL_COMMAND_RECV,
    REAL_SUBMIT,
    REAL_RECONNECT,
    REAL_CLOSE,
    REAL_REPLAY, // begin and end
    REAL_VERBS
};

// One call on a thread of its own.
struct real_call {
    enum real_verb verb;
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

void real_call_begin(struct real_call *call);
// Waits for its end, and returns its status.
sc_status real_call_end(struct real_call *call);

// What each call answers, of all that there are, on a handle where none has any effect.
#define REAL_ANSWERS_MAX 40u
uint32_t real_answers(sc_comm comm, uint64_t epoch, sc_status answers[REAL_ANSWERS_MAX]);

// ---- notes ----

// Everything that a handle's on_note heard, in order; under its own lock.
struct real_notes {
    pthread_mutex_t lock;
    uint32_t count;
    struct {
        struct sc_note note;
        char text[256];
        pthread_t thread;
        char thread_name[16];
    } list[256];
};

void real_notes_begin(struct real_notes *notes);
void real_on_note(void *notes, const struct sc_note *note); // for config.on_note
uint32_t real_notes_of(struct real_notes *notes, enum sc_note_kind kind);
// Whether one of that kind says these words.
bool real_notes_say(struct real_notes *notes, enum sc_note_kind kind, const char *words);

#endif
