// SPDX-License-Identifier: AGPL-3.0-only
//
// The proof that sc_bf16_add is what kernels/bf16.h says: all 2^32 pairs against the oracle, both
// one by one and as arrays. Takes half a minute on two cores, hence no part of the default tests.
//
//     cc -std=c17 -O2 -I. -pthread tests/proofs/bf16_all_pairs.c -lm -o bf16_all_pairs
#include "kernels/bf16.h"
#include "tests/support/bf16_oracle.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUES 65536u
#define THREADS 2u

static struct bf16_oracle oracle;

struct share {
    pthread_t thread;
    uint32_t first; // this thread's left operands: first, first + THREADS, …
    uint64_t equal;
    bool failed;
};

static bool check_left(uint16_t a, uint16_t *sums, uint16_t *partners) {
    for (uint32_t b = 0; b < VALUES; b++) {
        sums[b] = a;
        partners[b] = (uint16_t)b;
    }
    sc_bf16_add_array(sums, partners, VALUES);
    for (uint32_t b = 0; b < VALUES; b++) {
        uint16_t want = bf16_oracle_add(&oracle, a, (uint16_t)b);
        uint16_t single = sc_bf16_add(a, (uint16_t)b);

        if (single != want || sums[b] != want) {
            fprintf(stderr, "%04X + %04X must be %04X; one by one %04X, in an array %04X\n", a, b,
                    want, single, sums[b]);
            return false;
        }
    }
    return true;
}

static void *check_share(void *arg) {
    struct share *share = arg;
    uint16_t *sums = malloc(VALUES * sizeof *sums);
    uint16_t *partners = malloc(VALUES * sizeof *partners);

    share->failed = sums == NULL || partners == NULL;
    for (uint32_t a = share->first; a < VALUES && !share->failed; a += THREADS) {
        share->failed = !check_left((uint16_t)a, sums, partners);
        share->equal += share->failed ? 0 : VALUES;
    }
    free(sums);
    free(partners);
    return NULL;
}

int main(void) {
    struct share shares[THREADS] = {0};
    uint64_t equal = 0;
    bool failed = false;

    bf16_oracle_init(&oracle);
    for (uint32_t i = 0; i < THREADS; i++) {
        shares[i].first = i;
        if (pthread_create(&shares[i].thread, NULL, check_share, &shares[i]) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            exit(2);
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(shares[i].thread, NULL);
        failed = failed || shares[i].failed;
        equal += shares[i].equal;
    }
    if (failed)
        return 1;
    printf("%" PRIu64 " pairs equal\n", equal);
    return 0;
}
