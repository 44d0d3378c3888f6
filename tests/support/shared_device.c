// SPDX-License-Identifier: AGPL-3.0-only
//
// Whoever is kept waits outside the verb's lock: the other verbs go on.
#include "tests/support/shared_device.h"

#include "hal/forward.h"

#include <pthread.h>
#include <stdlib.h>

struct sc_shared_device {
    struct sc_device table;
    const struct sc_device *inner;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool keep;
    uint32_t kept;
};

// Inside the lock.
static void be_kept(struct sc_shared_device *shared, enum sc_device_verb verb) {
    if (verb != SC_VERB_group_end)
        return;
    shared->kept++;
    while (shared->keep)
        pthread_cond_wait(&shared->change, &shared->lock);
    shared->kept--;
}

#define VERB(name, parameters, arguments)                                                          \
    static sc_status name parameters {                                                             \
        struct sc_shared_device *shared = ctx;                                                     \
        const struct sc_device *to = shared->inner;                                                \
        pthread_mutex_lock(&shared->lock);                                                         \
        be_kept(shared, SC_VERB_##name);                                                           \
        sc_status status = to->name arguments;                                                     \
        pthread_mutex_unlock(&shared->lock);                                                       \
        return status;                                                                             \
    }
SC_DEVICE_SIGNATURES(VERB)

sc_status sc_shared_device_create(const struct sc_device *inner, struct sc_shared_device **out) {
    struct sc_shared_device *shared = calloc(1, sizeof *shared);

    if (shared == NULL)
        return SC_NO_MEMORY;
    pthread_mutex_init(&shared->lock, NULL);
    pthread_cond_init(&shared->change, NULL);
    shared->inner = inner;
    shared->table = (struct sc_device){
        .size = sizeof shared->table, .name = inner->name, .poll_ns = inner->poll_ns};
    shared->table.ctx = shared;
#define ENTER(verb) shared->table.verb = verb;
    SC_DEVICE_VERBS(ENTER)
#undef ENTER
    *out = shared;
    return SC_OK;
}

void sc_shared_device_destroy(struct sc_shared_device *shared) {
    if (shared == NULL)
        return;
    pthread_cond_destroy(&shared->change);
    pthread_mutex_destroy(&shared->lock);
    free(shared);
}

const struct sc_device *sc_shared_device_table(const struct sc_shared_device *shared) {
    return &shared->table;
}

void sc_shared_device_keep(struct sc_shared_device *shared, bool keep) {
    pthread_mutex_lock(&shared->lock);
    shared->keep = keep;
    pthread_cond_broadcast(&shared->change);
    pthread_mutex_unlock(&shared->lock);
}

uint32_t sc_shared_device_kept(struct sc_shared_device *shared) {
    pthread_mutex_lock(&shared->lock);
    uint32_t kept = shared->kept;
    pthread_mutex_unlock(&shared->lock);
    return kept;
}
