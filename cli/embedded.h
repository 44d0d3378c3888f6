// SPDX-License-Identifier: AGPL-3.0-only
// The models of cli/models/*.json, carried inside the program so that it needs no files of its own.
// The build writes the table; a model's name is its file's name without ".json".
#ifndef SC_CLI_EMBEDDED_H
#define SC_CLI_EMBEDDED_H

#include <stddef.h>

struct sc_embedded_model {
    const char *name; // lives as long as the program, as does the text
    const char *text; // valid JSON, ends with a 0
};

// Sorted by name; sc_embedded_models_count rows, then one of two NULLs. Read-only, any thread.
extern const struct sc_embedded_model sc_embedded_models[];
extern const size_t sc_embedded_models_count;

#endif
