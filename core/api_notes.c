// SPDX-License-Identifier: AGPL-3.0-only
//
// Notes: queued inside the monitor, delivered by the notifier thread outside of it. A full queue
// drops the newest and counts it: whoever is slow to listen slows nobody else.
#include "core/api_inside.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sc_note_push(struct sc_api *api, struct sc_note note, const char *format, ...) {
    if (api->on_note == NULL)
        return;
    if (api->notes_count == api->notes_max) {
        api->notes_dropped++;
        return;
    }
    struct sc_api_note *slot =
        &api->notes[(api->notes_first + api->notes_count++) % api->notes_max];
    slot->note = note;
    slot->note.size = sizeof note;
    slot->note.at_ns = api->host->now_ns(api->host->ctx);
    va_list args;
    va_start(args, format);
    vsnprintf(slot->text, sizeof slot->text, format, args);
    va_end(args);
    api->changed = true;
}

static void note_state(struct sc_api *api, const struct sc_action *a) {
    struct sc_note note = {.kind = SC_NOTE_STATE,
                           .from = (uint32_t)a->a,
                           .to = (uint32_t)a->b,
                           .rank = a->rank,
                           .status = a->status,
                           .epoch = a->epoch};
    const char *from = sc_state_name((enum sc_state)a->a), *to = sc_state_name((enum sc_state)a->b);
    char cause[160];
    struct sc_core_view view;
    if (a->status == SC_OK) {
        sc_note_push(api, note, "rank %u: %s -> %s", api->rank, from, to);
        return;
    }
    sc_pump_view(api->pump, &view);
    sc_note_push(api, note, "rank %u: %s -> %s: %s", api->rank, from, to,
                 sc_cause_text(&view.cause, cause, sizeof cause));
}

static void note_cause(struct sc_api *api, const struct sc_action *a) {
    struct sc_note note = {
        .kind = SC_NOTE_CAUSE, .rank = a->rank, .status = a->status, .epoch = a->epoch};
    char cause[160];
    struct sc_core_view view;
    sc_pump_view(api->pump, &view);
    sc_note_push(api, note, "why the epoch ended: %s",
                 sc_cause_text(&view.cause, cause, sizeof cause));
}

// The ranks of a mask, as "1, 3".
static const char *ranks_of(uint64_t mask, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t r = 0; r < SC_WORLD_MAX && used + 8 < bytes; r++)
        if (mask >> r & 1u)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used != 0 ? ", " : "", r);
    return text;
}

const char *sc_refusal_text(const struct sc_action *a, char *text, size_t bytes) {
    sc_status status = (sc_status)a->status;
    if (status == SC_CONFIG)
        snprintf(text, bytes, "%s is %" PRIu64 " on rank 0 and %" PRIu64 " there",
                 sc_config_field_name((enum sc_config_field)a->mask), a->a, a->b);
    else
        snprintf(text, bytes, "%s (%s)", sc_status_name(status), sc_status_sentence(status));
    return text;
}

void sc_note_notice(struct sc_api *api, const struct sc_action *a) {
    struct sc_note note = {.rank = a->rank, .status = a->status, .epoch = a->epoch};
    const char *name = sc_status_name((sc_status)a->status);
    char text[160];
    switch ((enum sc_notice)a->kind) {
    case SC_NOTICE_STATE: note_state(api, a); break;
    case SC_NOTICE_REFUSED:
        note.kind = SC_NOTE_REFUSED;
        sc_note_push(api, note, "rank %u refused: %s", a->rank,
                     sc_refusal_text(a, text, sizeof text));
        break;
    case SC_NOTICE_MISSING:
        note.kind = SC_NOTE_MISSING;
        note.value = a->mask;
        sc_note_push(api, note, "still missing: rank %s", ranks_of(a->mask, text, sizeof text));
        break;
    case SC_NOTICE_CAPTURES:
        note.kind = SC_NOTE_CAPTURES;
        note.value = a->a;
        sc_note_push(api, note, "recovery waits for %" PRIu64 " captures to be released", a->a);
        break;
    case SC_NOTICE_GREETED:
        note.kind = SC_NOTE_GREETED;
        sc_note_push(api, note, "the link to rank %u is up", a->rank);
        break;
    case SC_NOTICE_BYE:
        note.kind = SC_NOTE_BYE;
        sc_note_push(api, note, "rank %u leaves: %s", a->rank, name);
        break;
    case SC_NOTICE_BREACH:
        note.kind = SC_NOTE_BREACH;
        sc_note_push(api, note, "rank %u broke the protocol; its link was dropped", a->rank);
        break;
    case SC_NOTICE_CAUSE: note_cause(api, a); break;
    default: break; // of no interest to people
    }
}

uint64_t sc_api_notify_step(void *arg) {
    struct sc_api *api = arg;
    struct sc_api_note note;
    if (api->host->enter(api->host->ctx) != SC_OK)
        return SC_NEVER_NS;
    bool any = api->notes_count != 0;
    if (any) {
        note = api->notes[api->notes_first];
        note.note.text = note.text;
        note.note.dropped = api->notes_dropped;
        api->notes_first = (api->notes_first + 1) % api->notes_max;
        api->notes_count--;
        api->note_delivering = true;
    }
    api->host->leave(api->host->ctx);
    if (!any)
        return SC_NEVER_NS;
    api->on_note(api->note_arg, &note.note);
    if (api->host->enter(api->host->ctx) != SC_OK)
        return SC_NEVER_NS;
    api->note_delivering = false;
    if (api->closing) // it waits for the last one
        api->host->notify(api->host->ctx);
    uint64_t at = api->notes_count != 0 ? 0 : SC_NEVER_NS;
    api->host->leave(api->host->ctx);
    return at;
}
