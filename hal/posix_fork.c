// SPDX-License-Identifier: AGPL-3.0-only
//
// A forked child inherits every descriptor, and with it each link: as long as it lives, a peer would
// not see the end of a parent that has died. So the child closes its copies at once. The parent's
// locks are held across the fork, so that what the child sees is whole; nothing else in it is usable.
#include "hal/posix_inside.h"

#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sc_posix *first; // all that exist in this process
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    for (struct sc_posix *p = first; p != NULL; p = p->next)
        pthread_mutex_lock(&p->lock);
}

static void in_parent(void) {
    for (struct sc_posix *p = first; p != NULL; p = p->next)
        pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    for (struct sc_posix *p = first; p != NULL; p = p->next) {
        for (uint32_t i = 0; i < p->used; i++)
            if (p->entries[i].fd >= 0)
                close(p->entries[i].fd);
        close(p->wake_fd);
        close(p->spare_fd);
        close(p->event_fd);
        pthread_mutex_unlock(&p->lock);
    }
    first = NULL; // what is left of them is nobody's
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

void sc_posix_fork_watch(struct sc_posix *posix) {
    (void)pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    posix->next = first;
    first = posix;
    pthread_mutex_unlock(&lock);
}

void sc_posix_fork_forget(struct sc_posix *posix) {
    pthread_mutex_lock(&lock);
    struct sc_posix **link = &first;
    while (*link != NULL && *link != posix)
        link = &(*link)->next;
    if (*link != NULL)
        *link = posix->next;
    pthread_mutex_unlock(&lock);
}
