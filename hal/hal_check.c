// SPDX-License-Identifier: AGPL-3.0-only
//
// The checker's life, and what it tells: breaches, calls, leaks.
#include "hal/hal_check.h"

#include "hal/hal_check_state.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const verb_names[SC_DEVICE_VERB_COUNT] = {
#define SC_VERB_NAME(name) [SC_VERB_##name] = #name,
    SC_DEVICE_VERBS(SC_VERB_NAME)
#undef SC_VERB_NAME
};

static bool is_complete(const struct sc_device *device) {
    bool complete = device->size >= sizeof *device;
#define SC_VERB_PRESENT(name) complete = complete && device->name != NULL;
    SC_DEVICE_VERBS(SC_VERB_PRESENT)
#undef SC_VERB_PRESENT
    return complete;
}

sc_status sc_hal_check_create(const struct sc_device *inner,
                              const struct sc_hal_check_config *config, struct sc_hal_check **out) {
    if (inner == NULL || out == NULL || !is_complete(inner))
        return SC_INVALID;

    struct sc_hal_check *check = calloc(1, sizeof *check);
    if (check == NULL)
        return SC_NO_MEMORY;
    check->inner = inner;
    if (config != NULL)
        check->config = *config;
    check->device = (struct sc_device){
        .size = sizeof check->device,
        .name = inner->name,
        .ctx = check,
        .poll_ns = inner->poll_ns,
    };
    sc_check_enter_comm_verbs(&check->device);
    sc_check_enter_memory_verbs(&check->device);
    sc_check_enter_op_verbs(&check->device);
    if (inner->ops_look == NULL)
        check->device.ops_look = NULL;
    sc_check_enter_collective_verbs(&check->device);
    *out = check;
    return SC_OK;
}

void sc_hal_check_destroy(struct sc_hal_check *check) {
    free(check);
}

const struct sc_device *sc_hal_check_device(const struct sc_hal_check *check) {
    return &check->device;
}

uint64_t sc_hal_check_breaches(const struct sc_hal_check *check) {
    return check->breaches;
}

uint64_t sc_hal_check_calls(const struct sc_hal_check *check, enum sc_device_verb verb) {
    return (unsigned)verb < SC_DEVICE_VERB_COUNT ? check->calls[verb] : 0;
}

// ---- reports --------------------------------------------------------------------------------

static void report(struct sc_hal_check *check, const char *text) {
    check->breaches++;
    if (check->config.on_breach != NULL)
        check->config.on_breach(check->config.arg, text);
}

sc_status sc_check_breach(struct sc_hal_check *check, enum sc_device_verb verb, const char *format,
                          ...) {
    char what[192], text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "%s: %s", verb_names[verb], what);
    report(check, text);
    return SC_STATE;
}

sc_status sc_check_device_breach(struct sc_hal_check *check, enum sc_device_verb verb,
                                 sc_status answer, const char *what) {
    char text[256];

    snprintf(text, sizeof text, "%s: the device answered %s and %s", verb_names[verb],
             sc_status_name(answer), what);
    report(check, text);
    return answer;
}

sc_status sc_check_output(struct sc_hal_check *check, enum sc_device_verb verb, sc_status answer,
                          uint64_t value, uint64_t *out) {
    if (answer != SC_OK) {
        if (value != SC_CHECK_UNSET)
            sc_check_device_breach(check, verb, answer, "wrote its output");
        return answer;
    }
    if (value == SC_CHECK_UNSET)
        return sc_check_device_breach(check, verb, answer, "did not write its output");
    *out = value;
    return answer;
}

// ---- leaks ----------------------------------------------------------------------------------

struct list {
    char *text;
    size_t size, used;
    uint32_t count;
};

static void list_add(struct list *list, const char *what, uint64_t handle) {
    const char *comma = list->count++ == 0 ? "" : ", ";

    if (list->used >= list->size)
        return;
    int length = snprintf(list->text + list->used, list->size - list->used, "%s%s %#" PRIx64, comma,
                          what, handle);
    list->used += length > 0 ? (size_t)length : 0;
}

uint32_t sc_hal_check_leaks(const struct sc_hal_check *check, char *text, size_t size) {
    struct list list = {.text = text, .size = size};

    if (size > 0)
        text[0] = '\0';
    for (uint32_t i = 0; i < check->held_count; i++)
        list_add(&list, sc_held_kind_name(check->held[i].kind), check->held[i].handle);
    for (uint32_t i = 0; i < check->allocation_count; i++)
        list_add(&list, "allocation", check->allocations[i].address);
    for (uint32_t depth = 1; depth <= check->group_depth; depth++)
        list_add(&list, "open group", depth);
    return list.count;
}
