// SPDX-License-Identifier: AGPL-3.0-only
//
// Reads config.json: bytes, then JSON, then figures. A layer all-reduces if it passes every rule
// about experts that the config states; each rule strikes layers from one table.
#include "cli/model.h"

#include "cli/embedded.h"
#include "cli/model_json.h"
#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Bytes -------------------------------------------------------------------------------------

static bool read_all(struct sc_json *json, int fd, char *text, size_t bytes) {
    size_t have = 0;

    while (have < bytes) {
        ssize_t got = read(fd, text + have, bytes - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sc_json_fail(json, "cannot be read: %s", strerror(errno));
        if (got == 0)
            break;
        have += (size_t)got;
    }
    text[have] = '\0';
    if (strlen(text) != have) {
        return sc_json_fail(json, "holds a zero byte at offset %zu, expected JSON text",
                            strlen(text));
    }
    return true;
}

static bool check_kind(struct sc_json *json, int fd, size_t *bytes) {
    struct stat info;

    if (fstat(fd, &info) != 0)
        return sc_json_fail(json, "cannot be read: %s", strerror(errno));
    if (S_ISDIR(info.st_mode))
        return sc_json_fail(json, "is a directory, expected a model's config.json");
    if (!S_ISREG(info.st_mode))
        return sc_json_fail(json, "is not a regular file, expected a model's config.json");
    if ((uint64_t)info.st_size > SC_MODEL_FILE_BYTES_MAX) {
        return sc_json_fail(json,
                            "has %jd bytes, expected at most %" PRIu64 "; a config.json is small",
                            (intmax_t)info.st_size, SC_MODEL_FILE_BYTES_MAX);
    }
    *bytes = (size_t)info.st_size;
    return true;
}

// The file's text, to be freed by the caller, or NULL after failing.
static char *load(struct sc_json *json, const char *path) {
    // A pipe that nobody writes to must not hold the program up before it is refused.
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    char *text = NULL;
    size_t bytes = 0;

    if (fd < 0) {
        sc_json_fail(json, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    if (check_kind(json, fd, &bytes)) {
        text = malloc(bytes + 1);
        if (text == NULL) {
            sc_json_fail(json, "cannot be read: no memory for its %zu bytes", bytes);
        } else if (!read_all(json, fd, text, bytes)) {
            free(text);
            text = NULL;
        }
    }
    close(fd);
    return text;
}

// ---- Which layers hold experts -----------------------------------------------------------------

struct layers {
    struct sc_json *json;
    uint64_t count;
    bool moe[SC_MODEL_LAYERS_MAX]; // by layer: holds experts
};

static bool read_element(struct layers *layers, const char *key, size_t index, const cJSON *item,
                         uint64_t max, uint64_t *out) {
    char place[64];

    snprintf(place, sizeof place, "%s[%zu]", key, index);
    return sc_json_whole(layers->json, place, item, 0, max, out);
}

static bool strike_leading(struct layers *layers, const char *key) {
    struct sc_json_field field;
    uint64_t dense = 0;

    if (!sc_json_find(layers->json, SC_JSON_KEYS(key), &field))
        return false;
    if (field.item != NULL &&
        !sc_json_whole(layers->json, key, field.item, 0, layers->count, &dense))
        return false;
    for (uint64_t layer = 0; layer < dense; layer++)
        layers->moe[layer] = false;
    return true;
}

// A list of layer numbers: those that are dense, or those that alone hold experts.
static bool strike_listed(struct layers *layers, const char *key, bool listed_are_dense) {
    bool listed[SC_MODEL_LAYERS_MAX] = {false};
    struct sc_json_field field;
    const cJSON *item;
    size_t index = 0;
    uint64_t layer = 0;

    if (!sc_json_find(layers->json, SC_JSON_KEYS(key), &field))
        return false;
    if (field.item == NULL)
        return true;
    if (!cJSON_IsArray(field.item))
        return sc_json_fail_value(layers->json, key, field.item, "a list of layer numbers");
    cJSON_ArrayForEach(item, field.item) {
        if (!read_element(layers, key, index++, item, layers->count - 1, &layer))
            return false;
        listed[layer] = true;
    }
    for (layer = 0; layer < layers->count; layer++)
        layers->moe[layer] = layers->moe[layer] && listed[layer] != listed_are_dense;
    return true;
}

// A 0 or 1 for each layer.
static bool strike_flagged(struct layers *layers, const char *key, const cJSON *flags) {
    int count = cJSON_GetArraySize(flags);
    const cJSON *item;
    size_t layer = 0;
    uint64_t flag = 0;

    if ((uint64_t)count != layers->count) {
        return sc_json_fail(layers->json,
                            "%s lists %d layers, expected one entry for each of the %" PRIu64, key,
                            count, layers->count);
    }
    cJSON_ArrayForEach(item, flags) {
        if (!read_element(layers, key, layer, item, 1, &flag))
            return false;
        if (flag == 0)
            layers->moe[layer] = false;
        layer++;
    }
    return true;
}

// Every step-th layer holds experts, counted so that (layer + offset) is a multiple of step.
static bool strike_stepped(struct layers *layers, const char *key, uint64_t offset) {
    struct sc_json_field field;
    uint64_t step = 1;

    if (!sc_json_find(layers->json, SC_JSON_KEYS(key), &field))
        return false;
    if (cJSON_IsArray(field.item))
        return strike_flagged(layers, key, field.item);
    if (field.item != NULL &&
        !sc_json_whole(layers->json, key, field.item, 1, SC_MODEL_LAYERS_MAX, &step))
        return false;
    for (uint64_t layer = 0; layer < layers->count; layer++) {
        if ((layer + offset) % step != 0)
            layers->moe[layer] = false;
    }
    return true;
}

static bool count_moe_layers(struct layers *layers, uint64_t *out) {
    uint64_t count = 0;

    for (uint64_t layer = 0; layer < layers->count; layer++)
        layers->moe[layer] = true;
    if (!strike_leading(layers, "first_k_dense_replace") ||
        !strike_listed(layers, "mlp_only_layers", true) ||
        !strike_listed(layers, "moe_layers", false) ||
        !strike_stepped(layers, "moe_layer_freq", 0) ||
        !strike_stepped(layers, "decoder_sparse_step", 1) ||
        !strike_stepped(layers, "interleave_moe_layer_step", 1))
        return false;
    for (uint64_t layer = 0; layer < layers->count; layer++)
        count += layers->moe[layer];
    if (count == 0) {
        return sc_json_fail(layers->json,
                            "leaves none of its %" PRIu64 " layers with experts, expected one or "
                            "more (see first_k_dense_replace, mlp_only_layers, moe_layer_freq)",
                            layers->count);
    }
    *out = count;
    return true;
}

// ---- The model ---------------------------------------------------------------------------------

static bool add_level(struct sc_json *json, const char *key) {
    const cJSON *item = NULL;

    if (!sc_json_member(json, json->levels[0], key, &item))
        return false;
    if (item == NULL)
        return true;
    if (!cJSON_IsObject(item))
        return sc_json_fail_value(json, key, item, "an object");
    json->levels[json->level_count++] = item;
    return true;
}

// A label, so whatever is no text is passed over rather than refused.
static void read_name(struct sc_json *json, char *out, size_t out_bytes) {
    static const char *const keys[] = {"_name_or_path", "architectures", "model_type"};
    const char *base = strrchr(json->source, '/');

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t level = 0; level < json->level_count; level++) {
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(json->levels[level], keys[i]);

            if (cJSON_IsArray(item))
                item = cJSON_GetArrayItem(item, 0);
            if (cJSON_IsString(item) && item->valuestring[0] != '\0') {
                sc_text_clean(item->valuestring, out, out_bytes);
                return;
            }
        }
    }
    sc_text_clean(base != NULL ? base + 1 : json->source, out, out_bytes);
}

static bool read_dtype(struct sc_json *json, char *out, size_t out_bytes) {
    struct sc_json_field field;

    if (!sc_json_find(json, SC_JSON_KEYS("torch_dtype", "dtype"), &field))
        return false;
    if (field.item != NULL && !cJSON_IsString(field.item))
        return sc_json_fail_value(json, field.key, field.item, "a text such as \"bfloat16\"");
    sc_text_clean(field.item != NULL ? field.item->valuestring : "", out, out_bytes);
    return true;
}

static bool read_model(struct sc_json *json, const cJSON *document, struct sc_model *out) {
    struct layers layers = {.json = json};

    if (!cJSON_IsObject(document))
        return sc_json_fail_value(json, "the document", document, "a JSON object");
    json->levels[json->level_count++] = document;
    if (!add_level(json, "text_config") || !add_level(json, "llm_config") ||
        !add_level(json, "language_config"))
        return false;
    read_name(json, out->name, sizeof out->name);
    if (!read_dtype(json, out->dtype, sizeof out->dtype) ||
        !sc_json_size(json, "the hidden size",
                      SC_JSON_KEYS("hidden_size", "n_embd", "d_model", "dim"), SC_MODEL_HIDDEN_MAX,
                      &out->hidden_size) ||
        !sc_json_size(json, "the number of layers",
                      SC_JSON_KEYS("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
                      SC_MODEL_LAYERS_MAX, &out->layers) ||
        !sc_json_size(
            json, "the number of experts, so it is no mixture-of-experts model",
            SC_JSON_KEYS("num_experts", "n_routed_experts", "num_local_experts", "moe.num_experts"),
            SC_MODEL_EXPERTS_MAX, &out->experts) ||
        !sc_json_size(json, "the experts per token",
                      SC_JSON_KEYS("num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                   "moe.top_k", "top_k"),
                      out->experts, &out->experts_per_token))
        return false;
    layers.count = out->layers;
    return count_moe_layers(&layers, &out->moe_layers);
}

int sc_model_read_text(const char *name, const char *text, struct sc_model *out, char *err,
                       size_t err_bytes) {
    struct sc_json json = {.source = name, .err_bytes = err_bytes};
    struct sc_model model = {0};
    cJSON *document;
    bool ok;

    json.err = err;
    document = sc_json_parse(&json, text);
    ok = document != NULL && read_model(&json, document, &model);
    cJSON_Delete(document);
    if (ok)
        *out = model;
    return ok ? 0 : -1;
}

int sc_model_read_file(const char *path, struct sc_model *out, char *err, size_t err_bytes) {
    struct sc_json json = {.source = path, .err = err, .err_bytes = err_bytes};
    char *text = load(&json, path);
    int result = text == NULL ? -1 : sc_model_read_text(path, text, out, err, err_bytes);

    free(text);
    return result;
}

int sc_model_resolve(const char *name_or_path, struct sc_model *out, char *err, size_t err_bytes) {
    struct sc_json json = {.source = name_or_path, .err = err, .err_bytes = err_bytes};
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < sc_embedded_models_count; i++) {
        const struct sc_embedded_model *model = &sc_embedded_models[i];

        if (strcmp(model->name, name_or_path) == 0)
            return sc_model_read_text(model->name, model->text, out, err, err_bytes);
        if (used < sizeof names) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "",
                                     model->name);
        }
    }
    if (strchr(name_or_path, '/') == NULL && access(name_or_path, F_OK) != 0) {
        sc_json_fail(&json, "is neither a file nor a model carried by spark-comm (%s)", names);
        return -1;
    }
    return sc_model_read_file(name_or_path, out, err, err_bytes);
}
