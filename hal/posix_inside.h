// SPDX-License-Identifier: AGPL-3.0-only
//
// The object behind hal/posix.h, shared by its files:
//
//   posix_host.c     create, destroy, clock, entropy, waiting
//   posix_fork.c     what a forked child does
//   posix_thread.c   the monitor, the two threads, the descriptor for events
//   posix_link.c     the link table: listen, accept, send, recv, close
//   posix_dial.c     from a name to a connection
//   posix_resolve.c  the name service, and the thread that waits for it
//   posix_report.c   what is told of the last listen or dial
//   posix_table.c    handles
#ifndef SC_HAL_POSIX_INSIDE_H
#define SC_HAL_POSIX_INSIDE_H

#include "hal/posix.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum sc_posix_state {
    SC_POSIX_FREE,
    SC_POSIX_LISTENING,
    SC_POSIX_RESOLVING,
    SC_POSIX_CONNECTING,
    SC_POSIX_OPEN,
    SC_POSIX_FAILED,
};

union sc_posix_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct sc_posix_entry {
    uint64_t handle; // of its present or its last use; see posix_table.c
    enum sc_posix_state state;
    int fd;         // -1: none
    short interest; // poll events that wait is to tell of
    bool untold;    // a dial that was decided at once, and that nobody has asked
    sc_status failure;
    uint64_t rests_until_ns; // LISTENING: not watched before

    // of a listen or a dial: what was asked for, and what is tried
    char *host;
    uint32_t attempt;
    uint16_t port;
    union sc_posix_address address; // family AF_UNSPEC: none chosen yet
};

// How a listen or a dial went. Those behind BEGUN are ends.
enum sc_posix_stage {
    SC_POSIX_NOTHING, // none was begun
    SC_POSIX_LISTENS,
    SC_POSIX_BEGUN,
    SC_POSIX_NO_LISTENER,
    SC_POSIX_GIVEN_UP, // closed before there was an answer
    SC_POSIX_NO_NAME,
    SC_POSIX_NO_CONNECTION,
    SC_POSIX_MET_ITSELF,
    SC_POSIX_CONNECTED,
};

// The errors are those of the system, 0 where there is none.
struct sc_posix_report {
    enum sc_posix_stage stage;
    char host[256];
    uint16_t port;
    union sc_posix_address address;
    int resolver_error;
    int system_error;
};

struct sc_posix_thread {
    struct sc_posix *posix;
    const char *name;
    void (*run)(struct sc_posix_thread *thread); // until it is told to stop
    uint64_t (*step)(void *arg);
    void *arg;
    pthread_t id;
    bool started;
    bool told_to_stop; // guarded by the lock
};

struct sc_posix {
    struct sc_host host;
    struct sc_link link;
    struct sc_posix *next; // of all that exist, under posix_fork.c's own lock
    int wake_fd;           // an eventfd
    int event_fd;          // another
    int spare_fd; // given away for a moment, to close a newcomer that there is no descriptor for

    pthread_mutex_t lock; // the monitor's; it guards all that follows as well
    pthread_cond_t change;
    uint64_t notifies; // how many there were
    bool asleep;       // a wait watches what it has gathered, and still rightly so
    struct sc_posix_thread threads[SC_HOST_THREADS];

    struct sc_posix_query *query; // the one under way, or NULL
    struct sc_posix_report report;
    uint32_t used; // no entry is in use at or behind this one
    struct sc_posix_entry entries[SC_POSIX_HANDLES_MAX];
};

// ---- posix_host.c ----

uint64_t sc_posix_now_ns(void);
// What a wait that is under way watches is not what it should any more: it ends.
void sc_posix_rouse(struct sc_posix *posix);

// ---- posix_fork.c ----

void sc_posix_fork_watch(struct sc_posix *posix); // from now on …
void sc_posix_fork_forget(struct sc_posix *posix);

// ---- posix_thread.c ----

void sc_posix_threads_open(struct sc_posix *posix); // fills in that part of the host table, too
void sc_posix_threads_close(struct sc_posix *posix);

// ---- posix_link.c, posix_dial.c ----

extern const struct sc_link sc_posix_link_table; // without ctx

sc_status sc_posix_dial(void *ctx, const char *host, uint16_t port, uint32_t attempt,
                        uint64_t *link);
sc_status sc_posix_connected(void *ctx, uint64_t link);
// Moves a dial on as far as it goes. SC_OK when it is connected, SC_INPROGRESS, or why it failed.
sc_status sc_posix_standing(struct sc_posix *posix, struct sc_posix_entry *entry);
// Notes a dial that is closed before it was answered.
void sc_posix_give_up(struct sc_posix *posix, const struct sc_posix_entry *entry);

int sc_posix_socket(int family);    // stream, non-blocking, close-on-exec
void sc_posix_send_at_once(int fd); // without waiting for more bytes to send along
socklen_t sc_posix_length(const union sc_posix_address *address);
// Copies an address the resolver found, with the port put in. False for a family that is not ours.
bool sc_posix_address_of(const struct addrinfo *found, uint16_t port, union sc_posix_address *out);
// Descriptors or memory are lacking: it is not the other side's fault.
bool sc_posix_is_shortage(int error);

// ---- posix_resolve.c ----

struct sc_posix_answer {
    struct addrinfo *found; // NULL with an error
    int resolver_error;     // EAI_…, or 0
    int system_error;       // errno, with EAI_SYSTEM
};

// Asks and waits. With AI_NUMERICHOST in `flags` it asks nobody and never waits. Free what was found.
struct sc_posix_answer sc_posix_lookup(const char *host, int flags);

// SC_OK, SC_UNREACHABLE or SC_NO_MEMORY.
sc_status sc_posix_answer_status(const struct sc_posix_answer *answer);

// One question to the name service, asked on a thread of its own.
struct sc_posix_query;

// Begins to ask; `wake_fd` is written to when the answer is there. NULL with errno set.
struct sc_posix_query *sc_posix_query_begin(const char *host, int wake_fd);
// The answer, which lives as long as the query; NULL while there is none.
const struct sc_posix_answer *sc_posix_query_answer(struct sc_posix_query *query);
const char *sc_posix_query_host(const struct sc_posix_query *query);
// Answered or not; NULL is allowed. Afterwards `wake_fd` is not written to any more.
void sc_posix_query_end(struct sc_posix_query *query);

// ---- posix_report.c ----

// A listen or a dial has come that far; an end is remembered until the next end.
void sc_posix_note(struct sc_posix *posix, const struct sc_posix_entry *entry,
                   enum sc_posix_stage stage, int resolver_error, int system_error);
const char *sc_posix_explain(void *ctx, char *text, size_t bytes);

// ---- posix_table.c ----

void sc_posix_table_open(struct sc_posix *posix);
// A free entry, now in that state; NULL when all are taken.
struct sc_posix_entry *sc_posix_take(struct sc_posix *posix, enum sc_posix_state state);
// The same for a listen or a dial; NULL also when memory is lacking.
struct sc_posix_entry *sc_posix_take_for(struct sc_posix *posix, enum sc_posix_state state,
                                         const char *host, uint16_t port);
// NULL for a handle that is not in use.
struct sc_posix_entry *sc_posix_find(struct sc_posix *posix, uint64_t handle);
// Wait is to tell of these events, too.
void sc_posix_watch(struct sc_posix *posix, struct sc_posix_entry *entry, short events);
// Closes its socket, if it has one; wait tells of it no more.
void sc_posix_let_go(struct sc_posix *posix, struct sc_posix_entry *entry);
// Closes what it holds and frees it.
void sc_posix_release(struct sc_posix *posix, struct sc_posix_entry *entry);

#endif
