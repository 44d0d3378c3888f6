// SPDX-License-Identifier: AGPL-3.0-only
//
// Processes of our own: this very program once more, in another role, with a channel of whole messages
// to it. A role begins before anything of CUDA is touched, and ends at once when whoever started it
// does.
#ifndef SC_CLI_GPU_CHILD_H
#define SC_CLI_GPU_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SC_CHILD_CHANNEL 3 // the descriptor, in the child

struct sc_child {
    pid_t pid; // 0: there is none
    int channel;
};

// False after saying why on stderr.
bool sc_child_start(struct sc_child *child, const char *role);
// Kills it and waits for its end.
void sc_child_end(struct sc_child *child);
// Waits for its end; false when that was not exit status 0.
bool sc_child_await(struct sc_child *child);

// From now on NCCL keeps to sockets of this machine, in the processes that are started.
void sc_child_keep_to_sockets(void);
// From now on NCCL's RAS is off in the processes that are started, unless the environment says
// otherwise: for a minute it holds a descriptor for each peer that was lost.
void sc_child_keep_ras_off(void);
// The processes started from now on are this rank, and share their GPU with others: to NCCL, which has
// at most one rank of a host on a GPU, each is on a host of its own.
void sc_child_share_gpu(uint32_t rank);

// Either end. False: the other one is gone, or the message is of another length. Messages of several
// threads do not mix.
bool sc_child_say(int channel, const void *message, size_t bytes);
bool sc_child_hear(int channel, void *message, size_t bytes);

// A port of 127.0.0.1 that nobody listens on, for rank 0; 0 after saying on stderr why there is none.
uint32_t sc_child_free_port(void);

#endif
