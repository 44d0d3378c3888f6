// SPDX-License-Identifier: AGPL-3.0-only
//
// Stands in front of the C library's getaddrinfo.
#include "tests/support/name_service.h"

#include "core/assert.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool held;
    uint32_t asked;
    int errors[NAME_SERVICE_ERRORS];
    const char *addresses[NAME_SERVICE_ADDRESSES];
} service = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static int literal(const char *address, struct addrinfo **out) {
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    return getaddrinfo(address, NULL, &hints, out);
}

static int answer(struct addrinfo **out) {
    pthread_mutex_lock(&service.lock);
    uint32_t question = service.asked++;
    pthread_cond_broadcast(&service.change);
    while (service.held)
        pthread_cond_wait(&service.change, &service.lock);
    int error = question < NAME_SERVICE_ERRORS ? service.errors[question] : 0;
    for (uint32_t i = 0; error == 0 && i < NAME_SERVICE_ADDRESSES && service.addresses[i] != NULL;
         i++) {
        error = literal(service.addresses[i], out);
        out = &(*out)->ai_next;
    }
    pthread_mutex_unlock(&service.lock);
    return error;
}

int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                struct addrinfo **out) {
    union {
        void *symbol;
        int (*call)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    } next = {.symbol = dlsym(RTLD_NEXT, "getaddrinfo")};
    const char *dot = strrchr(name, '.');
    bool numeric = (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (numeric || dot == NULL || strcmp(dot, ".test") != 0)
        return next.call(name, port, hints, out);
    return answer(out);
}

void name_service_reset(void) {
    static const char *const usual[] = {"127.0.0.1"};
    static const int none[NAME_SERVICE_ERRORS];
    name_service_errors(none, NAME_SERVICE_ERRORS);
    name_service_addresses(usual, 1);
    pthread_mutex_lock(&service.lock);
    service.asked = 0;
    pthread_mutex_unlock(&service.lock);
    name_service_hold(false);
}

void name_service_errors(const int *errors, uint32_t count) {
    SC_ASSERT(count <= NAME_SERVICE_ERRORS);
    pthread_mutex_lock(&service.lock);
    memcpy(service.errors, errors, count * sizeof errors[0]);
    pthread_mutex_unlock(&service.lock);
}

void name_service_addresses(const char *const *addresses, uint32_t count) {
    SC_ASSERT(count <= NAME_SERVICE_ADDRESSES);
    pthread_mutex_lock(&service.lock);
    for (uint32_t i = 0; i < NAME_SERVICE_ADDRESSES; i++)
        service.addresses[i] = i < count ? addresses[i] : NULL;
    pthread_mutex_unlock(&service.lock);
}

void name_service_hold(bool held) {
    pthread_mutex_lock(&service.lock);
    service.held = held;
    pthread_cond_broadcast(&service.change);
    pthread_mutex_unlock(&service.lock);
}

uint32_t name_service_asked(void) {
    pthread_mutex_lock(&service.lock);
    uint32_t times = service.asked;
    pthread_mutex_unlock(&service.lock);
    return times;
}

void name_service_wait_until_asked(uint32_t times) {
    pthread_mutex_lock(&service.lock);
    while (service.asked < times)
        pthread_cond_wait(&service.change, &service.lock);
    pthread_mutex_unlock(&service.lock);
}
