// SPDX-License-Identifier: AGPL-3.0-only
//
// What of a model decides its all-reduces, read from a Hugging Face config.json.
//
// Configs spell the same figure in many ways; the spellings known are listed in model.c. For
// each figure the top level wins over a nested text model (text_config, llm_config,
// language_config), and within a level the first spelling listed wins. null means absent.
#ifndef SC_CLI_MODEL_H
#define SC_CLI_MODEL_H

#include <stddef.h>
#include <stdint.h>

#define SC_MODEL_FILE_BYTES_MAX (UINT64_C(16) << 20)
#define SC_MODEL_HIDDEN_MAX 1048576u
#define SC_MODEL_LAYERS_MAX 10000u
#define SC_MODEL_EXPERTS_MAX 65536u

struct sc_model {
    char name[64];              // safe to print: one line, no control bytes, cut with "..."
    uint64_t hidden_size;       // elements of one token's activation, 1 to SC_MODEL_HIDDEN_MAX
    uint64_t layers;            // 1 to SC_MODEL_LAYERS_MAX
    uint64_t moe_layers;        // those that hold experts and so all-reduce after them, 1 to layers
    uint64_t experts;           // routed experts of one layer, 1 to SC_MODEL_EXPERTS_MAX
    uint64_t experts_per_token; // 1 to experts
    char dtype[16];             // of the weights, as the config says it; "" where it does not
};

// Reads a config. A dense model is refused: it has no experts and thus no figures to give.
//   path      a regular file of at most SC_MODEL_FILE_BYTES_MAX
//   name      opens each sentence in place of the path, and names a model that does not name itself
//   text      ends with a 0; not kept
//   out       set only on success
//   err       one sentence that says the place, the value found and what is expected; set only on
//             failure, cut to err_bytes
// Return 0 or -1. Any thread; they keep no state.
int sc_model_read_file(const char *path, struct sc_model *out, char *err, size_t err_bytes);
int sc_model_read_text(const char *name, const char *text, struct sc_model *out, char *err,
                       size_t err_bytes);

// The same for what a user typed: the name of a model carried inside the program (cli/embedded.h),
// which wins, or else a path. "./NAME" reaches a file that has the name of a carried model.
int sc_model_resolve(const char *name_or_path, struct sc_model *out, char *err, size_t err_bytes);

#endif
