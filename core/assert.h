// SPDX-License-Identifier: AGPL-3.0-only
//
// Assertions that stay on in release: they guard our own invariants, never a caller's input.
#ifndef SC_CORE_ASSERT_H
#define SC_CORE_ASSERT_H

// Ends the process after saying which invariant broke and where.
_Noreturn void sc_assert_fail(const char *expression, const char *file, int line);

#define SC_ASSERT(expression)                                                                      \
    ((expression) ? (void)0 : sc_assert_fail(#expression, __FILE__, __LINE__))

// A planted bug is compiled in when SC_MUTANT_ID names it (scons mutant=N); each proves that the
// tests would notice. In every ordinary build SC_MUTANT(n) is the constant 0.
#ifndef SC_MUTANT_ID
#define SC_MUTANT_ID 0
#endif
#define SC_MUTANT(number) (SC_MUTANT_ID == (number))

#endif
