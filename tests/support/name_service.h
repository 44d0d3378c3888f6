// SPDX-License-Identifier: AGPL-3.0-only
//
// A program that uses this is its own name service for names that end in ".test": it answers when and
// as a test says. Other names go to the system's.
#ifndef SC_TESTS_SUPPORT_NAME_SERVICE_H
#define SC_TESTS_SUPPORT_NAME_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#define NAME_SERVICE_ERRORS 8u
#define NAME_SERVICE_ADDRESSES 4u

// Nothing was asked, no errors, nothing held; every name leads to 127.0.0.1.
void name_service_reset(void);
// The first answers are these EAI_ errors; 0: none.
void name_service_errors(const int *errors, uint32_t count);
// All others are this list of numeric addresses; the texts must stay.
void name_service_addresses(const char *const *addresses, uint32_t count);
void name_service_hold(bool held); // no answer before it is let go
uint32_t name_service_asked(void); // how many times
void name_service_wait_until_asked(uint32_t times);

#endif
