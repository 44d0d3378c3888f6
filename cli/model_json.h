// SPDX-License-Identifier: AGPL-3.0-only
//
// Strict look-ups in a JSON document. Whatever is wrong with it becomes one sentence that names
// the document and the place; a function that returns false or NULL has written that sentence.
#ifndef SC_CLI_MODEL_JSON_H
#define SC_CLI_MODEL_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SC_JSON_NESTING_MAX 64u
#define SC_JSON_LEVELS_MAX 4

// A list of spellings of one key.
#define SC_JSON_KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct sc_json {
    const char *source; // what the sentence calls the document
    char *err;          // takes the sentence, cut to err_bytes
    size_t err_bytes;
    const cJSON *levels[SC_JSON_LEVELS_MAX]; // objects that sc_json_find searches, in this order
    size_t level_count;
};

struct sc_json_field {
    const char *key;   // the spelling found
    const cJSON *item; // NULL when absent
};

// Writes "SOURCE: ..." and returns false.
__attribute__((format(printf, 2, 3))) bool sc_json_fail(struct sc_json *json, const char *format,
                                                        ...);

// Writes "SOURCE: KEY is VALUE, expected ..." and returns false.
bool sc_json_fail_value(struct sc_json *json, const char *key, const cJSON *item,
                        const char *expected);

// Parses a whole text, at most SC_JSON_NESTING_MAX levels deep. The caller deletes the document.
cJSON *sc_json_parse(struct sc_json *json, const char *text);

// The member `key` of an object, NULL when absent or null. A key given twice is refused: readers
// of JSON differ in which one they take.
bool sc_json_member(struct sc_json *json, const cJSON *object, const char *key, const cJSON **out);

// The first of the spellings that the first of the levels to have any has. A spelling "moe.top_k"
// means top_k within the object moe.
bool sc_json_find(struct sc_json *json, const char *const *keys, struct sc_json_field *out);

// A number without fraction from min to max, both at most 2^53; `key` names it in the sentence.
bool sc_json_whole(struct sc_json *json, const char *key, const cJSON *item, uint64_t min,
                   uint64_t max, uint64_t *out);

// Finds a whole number from 1 to max; `what` says what the document lacks when there is none.
bool sc_json_size(struct sc_json *json, const char *what, const char *const *keys, uint64_t max,
                  uint64_t *out);

#endif
