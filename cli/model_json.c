// SPDX-License-Identifier: AGPL-3.0-only
//
// The sentences and look-ups that model_json.h promises, on top of cJSON.
#include "cli/model_json.h"

#include "core/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool sc_json_fail(struct sc_json *json, const char *format, ...) {
    char source[256];
    char why[512];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    sc_text_clean(json->source, source, sizeof source);
    snprintf(json->err, json->err_bytes, "%s: %s", source, why);
    return false;
}

static bool fail_at(struct sc_json *json, const char *text, const char *at, const char *why) {
    size_t line = 1;
    size_t column = 1;

    for (; text < at; text++) {
        if (*text == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*text & 0xC0) != 0x80) { // a column is a character
            column++;
        }
    }
    return sc_json_fail(json, "line %zu, column %zu: %s", line, column, why);
}

static bool check_nesting(struct sc_json *json, const char *text) {
    size_t depth = 0;
    bool quoted = false;
    char why[64];

    for (const char *at = text; *at != '\0'; at++) {
        if (quoted && *at == '\\' && at[1] != '\0') {
            at++;
        } else if (*at == '"') {
            quoted = !quoted;
        } else if (!quoted && (*at == '{' || *at == '[')) {
            depth++;
        } else if (!quoted && (*at == '}' || *at == ']') && depth > 0) {
            depth--;
        }
        if (depth > SC_JSON_NESTING_MAX) {
            snprintf(why, sizeof why, "nested deeper than %u levels", SC_JSON_NESTING_MAX);
            return fail_at(json, text, at, why);
        }
    }
    return true;
}

cJSON *sc_json_parse(struct sc_json *json, const char *text) {
    const char *end = text;
    char why[64];
    cJSON *document;

    if (text[strspn(text, " \t\r\n")] == '\0') {
        sc_json_fail(json, "is empty, expected a JSON object");
        return NULL;
    }
    if (!check_nesting(json, text))
        return NULL;
    document = cJSON_ParseWithLengthOpts(text, strlen(text) + 1, &end, true);
    if (document == NULL) {
        if (*end == '\0') {
            snprintf(why, sizeof why, "the text ends inside its JSON");
        } else if (*end > ' ' && *end <= '~') {
            snprintf(why, sizeof why, "not valid JSON at '%c'", *end);
        } else {
            snprintf(why, sizeof why, "not valid JSON at byte 0x%02x", (unsigned char)*end);
        }
        fail_at(json, text, end, why);
    }
    return document;
}

static void describe(const cJSON *item, char *out, size_t out_bytes) {
    char clean[48];

    if (cJSON_IsNumber(item)) {
        snprintf(out, out_bytes, "%.15g", item->valuedouble);
    } else if (cJSON_IsString(item)) {
        sc_text_clean(item->valuestring, clean, sizeof clean);
        snprintf(out, out_bytes, "the text \"%s\"", clean);
    } else if (cJSON_IsBool(item)) {
        snprintf(out, out_bytes, "%s", cJSON_IsTrue(item) ? "true" : "false");
    } else {
        snprintf(out, out_bytes, "%s",
                 cJSON_IsArray(item)    ? "a list"
                 : cJSON_IsObject(item) ? "an object"
                                        : "null");
    }
}

bool sc_json_fail_value(struct sc_json *json, const char *key, const cJSON *item,
                        const char *expected) {
    char found[80];

    describe(item, found, sizeof found);
    return sc_json_fail(json, "%s is %s, expected %s", key, found, expected);
}

bool sc_json_member(struct sc_json *json, const cJSON *object, const char *key, const cJSON **out) {
    const cJSON *found = NULL;
    const cJSON *item;

    cJSON_ArrayForEach(item, object) {
        if (strcmp(item->string, key) != 0)
            continue;
        if (found != NULL)
            return sc_json_fail(json, "%s is given twice, expected once", key);
        found = item;
    }
    *out = cJSON_IsNull(found) ? NULL : found;
    return true;
}

// A key "moe.num_experts" is num_experts of the object moe.
static bool find_key(struct sc_json *json, const cJSON *object, const char *key,
                     const cJSON **out) {
    const char *dot = strchr(key, '.');
    const cJSON *inner = NULL;
    char head[32];

    if (dot == NULL)
        return sc_json_member(json, object, key, out);
    snprintf(head, sizeof head, "%.*s", (int)(dot - key), key);
    if (!sc_json_member(json, object, head, &inner))
        return false;
    *out = NULL;
    return !cJSON_IsObject(inner) || sc_json_member(json, inner, dot + 1, out);
}

bool sc_json_find(struct sc_json *json, const char *const *keys, struct sc_json_field *out) {
    *out = (struct sc_json_field){0};
    for (size_t level = 0; level < json->level_count; level++) {
        for (const char *const *key = keys; *key != NULL; key++) {
            if (!find_key(json, json->levels[level], *key, &out->item))
                return false;
            out->key = *key;
            if (out->item != NULL)
                return true;
        }
    }
    return true;
}

bool sc_json_whole(struct sc_json *json, const char *key, const cJSON *item, uint64_t min,
                   uint64_t max, uint64_t *out) {
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    char expected[96];

    if (value >= (double)min && value <= (double)max && value == (double)(uint64_t)value) {
        *out = (uint64_t)value;
        return true;
    }
    snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64, min, max);
    return sc_json_fail_value(json, key, item, expected);
}

bool sc_json_size(struct sc_json *json, const char *what, const char *const *keys, uint64_t max,
                  uint64_t *out) {
    struct sc_json_field field;
    char looked_for[256] = "";
    size_t used = 0;

    if (!sc_json_find(json, keys, &field))
        return false;
    if (field.item != NULL)
        return sc_json_whole(json, field.key, field.item, 1, max, out);
    for (const char *const *key = keys; *key != NULL && used < sizeof looked_for; key++) {
        used += (size_t)snprintf(looked_for + used, sizeof looked_for - used, "%s%s",
                                 key == keys      ? ""
                                 : key[1] != NULL ? ", "
                                                  : " and ",
                                 *key);
    }
    return sc_json_fail(json, "does not say %s; looked for %s", what, looked_for);
}
