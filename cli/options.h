// SPDX-License-Identifier: AGPL-3.0-only
//
// Option values, read strictly: a number is digits and nothing else.
// A refused value is explained on stderr in one sentence, here and nowhere else, so the caller
// only ends with exit status SC_EXIT_USAGE.
#ifndef SC_CLI_OPTIONS_H
#define SC_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SC_EXIT_USAGE 2

// Reads a whole number from min to max, both included.
//   option  as the user typed it ("--world"); it opens the sentence
//   text    decimal digits only: no sign, blank, fraction or exponent
//   out     set only on success
// Returns false after printing why.
bool sc_option_u64(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

// The same for a size in bytes, which may end in K, M or G: multiples of 1024.
bool sc_option_bytes(const char *option, const char *text, uint64_t min, uint64_t max,
                     uint64_t *out);

// Reads HOST:PORT, where an IPv6 address stands in brackets.
//   host    takes the name, without brackets, of less than host_bytes
//   port    1 to 65535
bool sc_option_address(const char *option, const char *text, char *host, size_t host_bytes,
                       uint32_t *port);

#endif
