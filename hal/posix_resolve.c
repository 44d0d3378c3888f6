// SPDX-License-Identifier: AGPL-3.0-only
//
// The name service may take seconds to answer, so it is asked on a thread of its own. Question and
// answer lie in one block that asker and thread share: the last of the two to let go frees it.
#include "hal/posix_inside.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct sc_posix_query {
    pthread_mutex_t lock;
    pthread_t thread;
    int wake_fd;
    bool answered;
    bool abandoned;
    struct sc_posix_answer answer; // the thread's alone until `answered`
    char host[];
};

struct sc_posix_answer sc_posix_lookup(const char *host, int flags) {
    const struct addrinfo hints = {.ai_flags = flags, .ai_socktype = SOCK_STREAM};
    struct sc_posix_answer answer = {0};
    answer.resolver_error = getaddrinfo(host, NULL, &hints, &answer.found);
    if (answer.resolver_error != 0)
        answer.found = NULL;
    if (answer.resolver_error == EAI_SYSTEM)
        answer.system_error = errno;
    return answer;
}

sc_status sc_posix_answer_status(const struct sc_posix_answer *answer) {
    if (answer->found != NULL)
        return SC_OK;
    bool shortage =
        answer->resolver_error == EAI_MEMORY ||
        (answer->resolver_error == EAI_SYSTEM && sc_posix_is_shortage(answer->system_error));
    return shortage ? SC_NO_MEMORY : SC_UNREACHABLE;
}

static void destroy(struct sc_posix_query *query) {
    if (query->answer.found != NULL)
        freeaddrinfo(query->answer.found);
    pthread_mutex_destroy(&query->lock);
    free(query);
}

static void *ask(void *arg) {
    struct sc_posix_query *query = arg;
    struct sc_posix_answer answer = sc_posix_lookup(query->host, 0);
    pthread_mutex_lock(&query->lock);
    query->answer = answer;
    query->answered = true;
    bool abandoned = query->abandoned;
    // Under the lock: whoever abandons the query may close wake_fd next.
    if (!abandoned)
        (void)eventfd_write(query->wake_fd, 1);
    pthread_mutex_unlock(&query->lock);
    if (abandoned)
        destroy(query);
    return NULL;
}

struct sc_posix_query *sc_posix_query_begin(const char *host, int wake_fd) {
    size_t bytes = strlen(host) + 1;
    struct sc_posix_query *query = calloc(1, sizeof *query + bytes);
    if (query == NULL)
        return NULL;
    memcpy(query->host, host, bytes);
    query->wake_fd = wake_fd;
    pthread_mutex_init(&query->lock, NULL);
    // The application's signal handlers run on the application's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&query->thread, NULL, ask, query);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return query;
    destroy(query);
    errno = error;
    return NULL;
}

const struct sc_posix_answer *sc_posix_query_answer(struct sc_posix_query *query) {
    pthread_mutex_lock(&query->lock);
    bool answered = query->answered;
    pthread_mutex_unlock(&query->lock);
    return answered ? &query->answer : NULL;
}

const char *sc_posix_query_host(const struct sc_posix_query *query) {
    return query->host;
}

void sc_posix_query_end(struct sc_posix_query *query) {
    if (query == NULL)
        return;
    pthread_t thread = query->thread;
    pthread_mutex_lock(&query->lock);
    bool answered = query->answered;
    query->abandoned = true;
    pthread_mutex_unlock(&query->lock);
    if (answered) { // the thread is at its end: this waits for no answer
        pthread_join(thread, NULL);
        destroy(query);
    } else {
        pthread_detach(thread);
    }
}
