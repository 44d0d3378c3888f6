// SPDX-License-Identifier: AGPL-3.0-only
//
// The two libraries. A copy that the program has loaded already is shared, so that its CUDA and ours
// are the same; otherwise the usual name is opened, or what the environment names instead.
#include "hal_cuda/inside.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#define NAME2(name) #name
#define NAME(name) NAME2(name) // as cuda.h versions it: cuMemAlloc_v2
#define NCCL_OLDEST 21800 // ncclCommRegister, and ncclCommInitRankConfig with its present layout
#define CUDA_OLDEST 12030 // cuStreamGetCaptureInfo_v3

static struct sc_cuda_driver driver;
static struct sc_cuda_nccl nccl_library;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static void *open_library(const char *variable, const char *name, struct sc_cuda_origin *origin,
                          char *why, size_t why_bytes) {
    const char *chosen = getenv(variable), *file = chosen != NULL ? chosen : name;
    struct link_map *map;
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    bool shared = library != NULL;
    if (library == NULL)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, why_bytes, "cannot open %s: %.200s; %s names another", file, dlerror(),
                 variable);
        return NULL;
    }
    if (origin->path == NULL) { // no attempt before, of which it could have been left
        origin->path = dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : name;
        origin->shared = shared;
    }
    return library;
}

static bool find(void *library, const char *name, void *slot, char *why, size_t why_bytes) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        snprintf(why, why_bytes, "%s is missing: %.200s", name, dlerror());
        return false;
    }
    *(void **)slot = symbol;
    return true;
}

static bool load_driver(char *why, size_t why_bytes) {
    void *library =
        open_library("SPARK_COMM_CUDA_LIBRARY", "libcuda.so.1", &driver.origin, why, why_bytes);
    if (library == NULL)
        return false;
#define FIND(name)                                                                                 \
    if (!find(library, NAME(name), &driver.name##_, why, why_bytes))                               \
        return false;
    FIND(cuDriverGetVersion) // first, so that an old one is told by its version
    (void)driver.cuDriverGetVersion_(&driver.version);
    int version = driver.version;
    if (version < CUDA_OLDEST) {
        snprintf(why, why_bytes, "the CUDA driver is %d.%d; at least %d.%d is needed",
                 version / 1000, version % 1000 / 10, CUDA_OLDEST / 1000, CUDA_OLDEST % 1000 / 10);
        return false;
    }
    SC_CUDA_DRIVER(FIND)
    CUresult result = driver.cuInit_(0);
    const char *word = "unknown";
    if (result == CUDA_SUCCESS)
        return true;
    (void)driver.cuGetErrorString_(result, &word);
    snprintf(why, why_bytes, "cuInit: %s", word);
    return false;
}

// On aarch64 these versions lose proxy slots to a weak compare-and-swap and hang in the end.
static bool is_refused_here(int version) {
#ifdef __aarch64__
    return version >= 22809 && version <= 22902 && getenv("SPARK_COMM_ANY_NCCL") == NULL;
#else
    (void)version;
    return false;
#endif
}

static bool load_nccl(char *why, size_t why_bytes) {
    void *library = open_library("SPARK_COMM_NCCL_LIBRARY", "libnccl.so.2", &nccl_library.origin,
                                 why, why_bytes);
    if (library == NULL)
        return false;
#define FIND_NCCL(name)                                                                            \
    if (!find(library, #name, &nccl_library.name##_, why, why_bytes))                              \
        return false;
    SC_CUDA_NCCL(FIND_NCCL)
#define FIND_OPTIONAL(name) *(void **)&nccl_library.name##_ = dlsym(library, #name);
    SC_CUDA_NCCL_OPTIONAL(FIND_OPTIONAL)
    if (nccl_library.ncclGetVersion_(&nccl_library.version) != ncclSuccess)
        nccl_library.version = 0;
    int version = nccl_library.version;
    if (version >= NCCL_OLDEST && !is_refused_here(version))
        return true;
    snprintf(
        why, why_bytes,
        "NCCL is %d.%d.%d; at least %d.%d is needed, and on aarch64 none from 2.28.9 to 2.29.2, "
        "which hang there (SPARK_COMM_ANY_NCCL=1 takes them all the same)",
        version / 10000, version / 100 % 100, version % 100, NCCL_OLDEST / 10000,
        NCCL_OLDEST / 100 % 100);
    return false;
}

sc_status sc_cuda_load(const struct sc_cuda_driver **cu, const struct sc_cuda_nccl **nccl,
                       char *why, size_t why_bytes) {
    pthread_mutex_lock(&lock);
    if (!loaded)
        loaded = load_driver(why, why_bytes) && load_nccl(why, why_bytes);
    bool done = loaded;
    pthread_mutex_unlock(&lock);
    *cu = &driver;
    *nccl = &nccl_library;
    return done ? SC_OK : SC_UNAVAILABLE;
}
