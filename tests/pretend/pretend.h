// SPDX-License-Identifier: AGPL-3.0-only
//
// CUDA's driver and NCCL on the CPU, as far as hal_cuda and the programs that test it call them: one
// shared library, named to them by SPARK_COMM_CUDA_LIBRARY and SPARK_COMM_NCCL_LIBRARY, so that the
// code of the real world runs where no GPU is, under sanitizers too.
//
//   driver*.c  contexts, memory, streams, events, captures, graphs, kernels by their names
//   nccl*.c    communicators between processes of this machine, and what is enqueued with them
//
// What it keeps of the real ones is what hal_cuda relies on; where the real ones differ between
// versions or links, it does what is hardest to live with: kernels of a lost peer spin until the abort,
// and freeing memory waits for everything that runs, with all others kept out of the driver meanwhile.
// It measures nothing: its times are of no GPU.
#ifndef SC_PRETEND_H
#define SC_PRETEND_H

#include <cuda.h>

#include <stdbool.h>

// Something that a stream does. `run` is called by the stream's own thread, in order, once a launch:
// many times where the stream was captured. It may take as long as it likes: a spinning kernel. `drop`
// frees `arg` when nothing can run it any more; called once.
struct pretend_work {
    void (*run)(void *arg);
    void (*drop)(void *arg);
    void *arg;
};

// Enqueues it, or records it where the stream captures. Takes `work` over, also on an error.
CUresult pretend_put(CUstream stream, struct pretend_work work);

#endif
