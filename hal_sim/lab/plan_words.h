// SPDX-License-Identifier: AGPL-3.0-only
//
// A line of a plan, cut into words that are taken one after the other. Inside the plan reader only.
//
// What cannot be taken becomes one sentence that begins with "name:line: "; a function that returns
// false has written it, unless its comment says otherwise.
#ifndef SC_LAB_PLAN_WORDS_H
#define SC_LAB_PLAN_WORDS_H

#include "hal_sim/lab/plan.h"

#define SC_PLAN_WORDS_MAX 32u
#define SC_PLAN_STATEMENT_BYTES 256u // without its comment
#define SC_PLAN_LONGEST_NS (UINT64_C(7) * 24 * 3600 * 1000000000)
#define SC_PLAN_DURATION_BYTES 24u

struct sc_plan_line {
    const char *name; // of the plan
    uint32_t number;
    char *why;
    size_t why_bytes;
    char text[2 * SC_PLAN_STATEMENT_BYTES];    // the words, each ended by a 0
    const char *words[SC_PLAN_WORDS_MAX + 1u]; // NULL after the last one
    uint32_t at;                               // the next word to take
    uint32_t layers_max; // an op may raise the plan's layers up to here; 0: they are given
};

// Writes the sentence and returns false.
__attribute__((format(printf, 2, 3))) bool sc_plan_refuse(struct sc_plan_line *line,
                                                          const char *format, ...);

// Refuses `name`, which is for the lab's own runs, in a plan for somebody else's application.
bool sc_plan_refuse_ours(struct sc_plan_line *line, const char *name);

// Cuts a statement: words stand between blanks, and a colon is a word of its own.
SC_MUST_USE bool sc_plan_cut(struct sc_plan_line *line, const char *statement, size_t bytes);

// Takes the words that spell `name`, in which blank, '_' and '-' are alike. False, without a
// sentence, when the line goes on differently.
SC_MUST_USE bool sc_plan_take(struct sc_plan_line *line, const char *name);
// The same, but nothing else may stand here.
SC_MUST_USE bool sc_plan_need(struct sc_plan_line *line, const char *name);
// Nothing may stand here any more.
SC_MUST_USE bool sc_plan_need_end(struct sc_plan_line *line);

// Whole numbers and durations from min to max; `what` names the value in the sentence.
SC_MUST_USE bool sc_plan_take_number(struct sc_plan_line *line, const char *what, uint64_t min,
                                     uint64_t max, uint64_t *out);
SC_MUST_USE bool sc_plan_take_duration(struct sc_plan_line *line, const char *what, uint64_t min_ns,
                                       uint64_t max_ns, uint64_t *out_ns);

// The nearest of the names that could have stood here: start with zero, offer each, then refuse.
struct sc_plan_guess {
    const char *name;
    uint32_t distance;
};
void sc_plan_guess(struct sc_plan_guess *guess, const struct sc_plan_line *line, const char *name);
bool sc_plan_refuse_unknown(struct sc_plan_line *line, const char *what,
                            const struct sc_plan_guess *guess);

// As a plan writes it, to the nanosecond, in the largest unit that it reaches: "300ms", "1.5s".
void sc_plan_duration_text(uint64_t ns, char out[static SC_PLAN_DURATION_BYTES]);

// Reads "TRIGGER: ACTION" against the plan so far: its ranks, layers and earlier entries.
SC_MUST_USE bool sc_plan_read_entry(struct sc_plan_line *line, const struct sc_plan *plan,
                                    struct sc_plan_entry *out);

#endif
