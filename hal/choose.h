// SPDX-License-Identifier: AGPL-3.0-only
//
// Which world a handle is opened in. hal/choose.c alone names the worlds, hal/world.c adds what is the
// same in all of them; everybody else sees three tables.
#ifndef SC_HAL_CHOOSE_H
#define SC_HAL_CHOOSE_H

#include "core/action.h"
#include "hal/hal.h"

// What the application does, told just before it is done.
enum sc_word {
    SC_WORD_SUBMIT, // an op, or a replay; whatever becomes of it
    SC_WORD_MARK,   // value: the mark; only if it was accepted, just after
};

// Takes one remark: a line for people, and what kind of note it makes, SC_NOTE_ENVIRONMENT or
// SC_NOTE_WARNING. Whoever takes it cleans it, and cuts it where it is longer than a note.
typedef void sc_remark(void *arg, enum sc_note_kind kind, const char *line);

struct sc_world {
    const struct sc_host *host; // the three, until release
    const struct sc_link *link; // sealed, if there is a key
    const struct sc_device *device;
    uint32_t library; // version number of the communication library; ranks compare it
    bool environment; // whether the environment may override tunables
    // Makes its remarks about the surroundings, once, as a handle opens. NULL: it has none.
    void (*remarks)(void *owner, sc_remark *remark, void *arg);
    // Listeners, NULL where there are none. Called outside the monitor. `opened` comes last in sc_open.
    void (*on_word)(void *owner, enum sc_word word, uint64_t value);
    // What the core tells, with the cause of a state that has one; and records that the application
    // takes. These two inside the monitor.
    void (*on_notice)(void *owner, const struct sc_action *notice, const struct sc_cause *cause);
    void (*on_recovery)(void *owner, const struct sc_recovery *recovery);
    void (*opened)(void *owner, sc_comm comm);
    // The tables are used no more.
    void (*release)(void *owner);
    void *owner;
    struct sc_sealed *sealed; // of sc_choose
};

// The world of the calling thread: the simulated one where the thread belongs to a simulated rank,
// otherwise the real one. On an error nothing is held and `why` says what is wrong: SC_UNAVAILABLE,
// SC_KEY (the key file cannot be used), SC_NO_MEMORY, SC_DEVICE_ERROR, SC_INVALID.
SC_MUST_USE sc_status sc_choose(const struct sc_config *config, struct sc_world *out, char *why,
                                size_t why_bytes);
// The same without a seal; in hal/choose.c by itself, so that a program may bring a world of its own.
SC_MUST_USE sc_status sc_choose_world(const struct sc_config *config, struct sc_world *out,
                                      char *why, size_t why_bytes);
// Gives it back; nothing of it is used any more.
void sc_world_release(struct sc_world *world);

#endif
