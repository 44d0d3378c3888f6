// SPDX-License-Identifier: AGPL-3.0-only
//
// The key file of a job: 64 hexadecimal digits, and a newline if you like, that nobody else may read.
#ifndef SC_HAL_KEY_H
#define SC_HAL_KEY_H

#include "core/status.h"

// Reads the key at `path`: a regular file of the effective user or of root, which group and others
// can neither read nor write. Links are followed, as secrets are often mounted behind them; what is
// judged is the file that was opened. Otherwise SC_KEY (SC_INVALID for a NULL or empty path): `key`
// is left alone, and `why` says what is wrong and what to do, cut to `why_bytes`, at least 1. Nothing
// of the file's content is ever in `why`.
SC_MUST_USE sc_status sc_key_read(const char *path, uint8_t key[SC_KEY_BYTES], char *why,
                                  size_t why_bytes);

#endif
