// SPDX-License-Identifier: AGPL-3.0-only
//
// spark-comm bench: what an all-reduce costs; bench recover: what a loss costs. Real processes, one a
// GPU.
#ifndef SC_CLI_BENCH_H
#define SC_CLI_BENCH_H

#include "cli/model.h"

#include <stdbool.h>
#include <stdint.h>

#define SC_BENCH_GPUS_MAX 8u
#define SC_BENCH_ROUNDS_MAX 1000u
#define SC_BENCH_BYTES_MAX (UINT64_C(1) << 30)
#define SC_BENCH_SIZES_MAX 32u // from 2 bytes to the largest, by a factor of 2 at least
#define SC_BENCH_DEVICE_MAX 1023u

struct sc_bench_request {
    uint64_t min_bytes, max_bytes; // of a payload
    uint64_t factor;               // from one size to the next
    uint64_t iterations, warm_ups; // ops of a sample, and before it
    uint64_t rounds;               // samples of each way, in turns
    uint64_t gpus;
    bool shared; // all ranks are on `device`, and NCCL on sockets
    uint64_t device;
    const char *json; // a file, or NULL
};

// What is done to a rank.
enum sc_recover_how {
    SC_RECOVER_KILL,  // its process is killed, and another started
    SC_RECOVER_STOP,  // its process is frozen, and another started
    SC_RECOVER_RESET, // its control link is shut down beneath the library
    SC_RECOVER_ASYNC, // a data socket of its communicator is, beneath NCCL; NCCL is kept to sockets
    SC_RECOVER_HOWS
};

struct sc_recover_request {
    uint64_t cycles;
    enum sc_recover_how how;
    uint64_t gpus, victim;
    bool victim_given, graph;
    uint64_t load_ms; // a newcomer takes so long from its open to its join
    uint64_t rest_ms; // the ranks work so long between a recovery and the next strike; 0: drawn
    bool sockets;     // NCCL keeps to them
    bool shared;      // all ranks are on `device`, and NCCL on sockets
    uint64_t device;
    const char *model_name;
    struct sc_model model;
    uint64_t leak_host_kib, leak_gpu_kib; // what a survivor may have more after all cycles
    const char *json;                     // a file, or NULL
};

const char *sc_recover_how_name(enum sc_recover_how how);
// Whether another process is started in the place of the one that it is done to.
bool sc_recover_replaces(enum sc_recover_how how);

// Runs "spark-comm bench" and "bench recover"; argv[0] is "spark-comm bench". Returns the exit status:
// 0 when every result was right and every cycle ended as it must; 1 when not, or when something cannot
// be written; 2 for wrong input, or where there are no GPUs to measure, after one sentence on stderr.
int sc_cli_bench(int argc, char **argv);

// What is done once the words are read; where no GPU world is built they say so.
int sc_bench_play(const struct sc_bench_request *request);
int sc_recover_play(const struct sc_recover_request *request);

// One rank of them, as the command starts itself: argv[0] is the role, the channel to the one that
// started it is open. Not for people.
int sc_bench_rank(int argc, char **argv);
int sc_recover_rank(int argc, char **argv);

#endif
