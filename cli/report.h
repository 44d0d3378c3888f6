// SPDX-License-Identifier: AGPL-3.0-only
//
// What the commands that play runs have in common: progress on stderr, JSON and times on stdout.
#ifndef SC_CLI_REPORT_H
#define SC_CLI_REPORT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The monotonic clock, which all processes of a machine share.
uint64_t sc_report_now_ns(void);

// Tells how far a long piece of work is: nothing in its first second, then a line that a terminal
// sees change in place, and elsewhere a line every ten seconds. One thread.
struct sc_progress {
    uint64_t started_ns;
    uint64_t shown_ns;
    bool terminal;
    bool begun; // a line was shown
    bool shown; // … and stands there now
};
void sc_progress_begin(struct sc_progress *progress);
__attribute__((format(printf, 2, 3))) void sc_progress_show(struct sc_progress *progress,
                                                            const char *format, ...);
// Takes the line off the terminal, so that something else can be printed; show draws it again.
void sc_progress_clear(struct sc_progress *progress);
// Clears the line for good. Returns the real time since begin.
uint64_t sc_progress_end(struct sc_progress *progress);

#define SC_REPORT_TIME_BYTES 32u
// A duration in the unit that reads best, to four digits: "312 us", "1.234 s".
const char *sc_report_time(uint64_t ns, char out[static SC_REPORT_TIME_BYTES]);

// Numbers and hashes without the loss of a double. False when out of memory.
bool sc_report_u64(cJSON *object, const char *key, uint64_t value);
bool sc_report_hex(cJSON *object, const char *key, uint64_t value);

// The value that so many hundredths of a sorted list do not exceed, by nearest rank; 0 of none.
uint64_t sc_report_quantile(const uint64_t *sorted, size_t count, unsigned percent);
void sc_report_sort(uint64_t *values, size_t count);

// Writes the object to a file and deletes it. `ok` is whether it could be built. Returns false after
// saying on stderr what went wrong.
bool sc_report_json_file(cJSON *object, bool ok, const char *path);

// Prints the object on stdout and deletes it. `ok` is whether it could be built. Returns false
// after saying on stderr that memory ran out.
bool sc_report_json(cJSON *object, bool ok);

// Flushes stdout; returns `result`, or 1 after saying that stdout could not be written.
int sc_report_end(int result);

#endif
