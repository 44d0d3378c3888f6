// SPDX-License-Identifier: AGPL-3.0-only
//
// Graphs. What was recorded is one list, which the graph, all that was made of it and every launch that
// has not ended hold together. With the last of them go the objects that it keeps: their destructors
// are called on a thread of the driver's own.
#include "tests/pretend/driver.h"

#include <stdlib.h>

struct CUuserObject_st {
    enum driver_kind kind;
    _Atomic uint32_t references;
    CUhostFn destroy;
    void *arg;
};

struct kept {
    CUuserObject object;
    uint32_t references;
};

struct recording {
    _Atomic uint32_t holders;
    struct pretend_work *works;
    struct kept *kept;
    size_t works_count, works_room, kept_count;
};

struct CUgraph_st {
    enum driver_kind kind;
    bool open; // it is being captured
    struct recording *recording;
};

struct CUgraphExec_st {
    enum driver_kind kind;
    struct recording *recording;
};

// ---- objects -----------------------------------------------------------------------------------

static void run_destructor(void *arg) {
    struct CUuserObject_st *object = arg;
    object->destroy(object->arg);
}

static void release(CUuserObject object, uint32_t references) {
    if (atomic_fetch_sub(&object->references, references) != references)
        return;
    object->kind = 0;
    driver_later((struct pretend_work){run_destructor, free, object});
}

CUresult cuUserObjectCreate(CUuserObject *object, void *arg, CUhostFn destroy, unsigned references,
                            unsigned flags) {
    if (object == NULL || destroy == NULL || references == 0 ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->kind = DRIVER_OBJECT;
    atomic_store(&made->references, references);
    made->destroy = destroy;
    made->arg = arg;
    *object = made;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned references) {
    if (!DRIVER_IS(object, DRIVER_OBJECT) || references == 0 ||
        references > atomic_load(&object->references))
        return CUDA_ERROR_INVALID_VALUE;
    release(object, references);
    return CUDA_SUCCESS;
}

// ---- recordings --------------------------------------------------------------------------------

// Takes no lock of the driver's: the last holder may be a launch, on its stream's thread.
static void let_go(void *arg) {
    struct recording *r = arg;
    if (atomic_fetch_sub(&r->holders, 1) != 1)
        return;
    for (size_t i = 0; i < r->works_count; i++)
        driver_drop(r->works[i]);
    for (size_t i = 0; i < r->kept_count; i++)
        release(r->kept[i].object, r->kept[i].references);
    free(r->works);
    free(r->kept);
    free(r);
}

static void run_recording(void *arg) {
    struct recording *r = arg;
    for (size_t i = 0; i < r->works_count; i++)
        r->works[i].run(r->works[i].arg);
}

CUgraph driver_graph_new(void) {
    CUgraph graph = calloc(1, sizeof *graph);
    struct recording *r = graph != NULL ? calloc(1, sizeof *r) : NULL;
    if (r == NULL) {
        free(graph);
        return NULL;
    }
    atomic_store(&r->holders, 1);
    *graph = (struct CUgraph_st){DRIVER_GRAPH, true, r};
    return graph;
}

CUresult driver_graph_add(CUgraph graph, struct pretend_work work) {
    struct recording *r = graph->recording;
    if (r->works_count == r->works_room) {
        size_t room = 2 * r->works_room + 8;
        struct pretend_work *works = realloc(r->works, room * sizeof *works);
        if (works == NULL) {
            driver_drop(work);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        r->works = works;
        r->works_room = room;
    }
    r->works[r->works_count++] = work;
    return CUDA_SUCCESS;
}

void driver_graph_close(CUgraph graph) {
    graph->open = false;
}

void driver_graph_let_go(CUgraph graph) {
    let_go(graph->recording);
    graph->kind = 0;
    free(graph);
}

static CUresult keep(struct recording *r, CUuserObject object, uint32_t references) {
    struct kept *kept = realloc(r->kept, (r->kept_count + 1) * sizeof *kept);
    if (kept == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    kept[r->kept_count++] = (struct kept){object, references};
    r->kept = kept;
    return CUDA_SUCCESS;
}

// ---- CUDA's calls ------------------------------------------------------------------------------

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned references,
                                 unsigned flags) {
    CUcontext context;
    if (references == 0 || (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(graph, DRIVER_GRAPH) || !DRIVER_IS(object, DRIVER_OBJECT))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    result = keep(graph->recording, object, references);
    if (result == CUDA_SUCCESS && (flags & CU_GRAPH_USER_OBJECT_MOVE) == 0)
        atomic_fetch_add(&object->references, references);
    return driver_leave(result);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUcontext context;
    if (exec == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver_enter(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(graph, DRIVER_GRAPH) || graph->open)
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    CUgraphExec made = malloc(sizeof *made);
    if (made == NULL)
        return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&graph->recording->holders, 1);
    *made = (struct CUgraphExec_st){DRIVER_EXEC, graph->recording};
    *exec = made;
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    CUstream stream;
    CUresult result = driver_enter_stream(handle, &stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!DRIVER_IS(exec, DRIVER_EXEC))
        return driver_leave(CUDA_ERROR_INVALID_VALUE);
    atomic_fetch_add(&exec->recording->holders, 1);
    return driver_leave(
        driver_put(stream, (struct pretend_work){run_recording, let_go, exec->recording}));
}

CUresult cuGraphDestroy(CUgraph graph) {
    if (!DRIVER_IS(graph, DRIVER_GRAPH) || graph->open)
        return CUDA_ERROR_INVALID_VALUE;
    driver_graph_let_go(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    if (!DRIVER_IS(exec, DRIVER_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    let_go(exec->recording);
    exec->kind = 0;
    free(exec);
    return CUDA_SUCCESS;
}
