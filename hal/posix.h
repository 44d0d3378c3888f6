// SPDX-License-Identifier: AGPL-3.0-only
//
// The real clock, threads and sockets: sc_host and sc_link of one process, for one pump.
//
// Both tables belong to one object, so that host.wait sleeps on exactly the sockets that link handed
// out, on the clock, and on wake. A wait tells of a socket once; asking it again (accept, connected,
// send, recv) makes the next wait watch it again. So a link that nobody asks costs no spinning, and
// whoever waits must first have asked until the answer was SC_INPROGRESS, as sc_pump_run does.
//
// Who may call what. The verbs of link, inside the monitor or, where a pump has only one thread, by
// that one. host.wait, outside the monitor and one thread at a time: the PROGRESS thread, once it is
// started. While it sleeps others may use link; what gives it more to watch, or closes what it
// watches, ends the wait as wake would. thread_start, thread_stop, create and destroy, one thread at
// a time. now_ns, entropy, wake, event_fd and event_signal, any thread until destroy begins; wake
// also in a signal handler.
#ifndef SC_HAL_POSIX_H
#define SC_HAL_POSIX_H

#include "hal/hal.h"

#define SC_POSIX_HANDLES_MAX 256u // links and listeners at a time

struct sc_posix;

// An object without sockets. SC_NO_MEMORY when memory or descriptors are lacking.
SC_MUST_USE sc_status sc_posix_create(struct sc_posix **out);

// Closes every socket that is left and frees the object; both tables end with it. The threads that
// were started have been stopped. Waits for nobody: a thread that still asks the name service ends
// by itself. NULL is allowed.
void sc_posix_destroy(struct sc_posix *posix);

// Closes every socket, as the end of the process would, which its owner plays here: all handles of
// link end. Inside the monitor.
void sc_posix_hang_up(struct sc_posix *posix);

// Whether the calling thread is this host's PROGRESS thread, for which nobody may wait.
bool sc_posix_in_progress(const struct sc_posix *posix);

// Clock: CLOCK_MONOTONIC. Entropy: the kernel's, never short; SC_DEVICE_ERROR when there is none.
// wait: never SC_TIMEOUT before the deadline; SC_NO_MEMORY when the kernel cannot watch the sockets.
// thread_start: also SC_STATE, when that thread is started already. event_fd: an eventfd.
const struct sc_host *sc_posix_host(struct sc_posix *posix);

// TCP over IPv4 and IPv6. Beyond what hal.h says:
//   listen     alone may wait for the name service. Of several addresses the first that binds is
//              taken. Also SC_NO_MEMORY: no descriptor, no handle.
//   accept     when descriptors or handles run out, newcomers are closed rather than left hanging,
//              and waits leave the listener alone for 100 ms.
//   dial       a name is resolved on a thread of its own, one name at a time; a dial of the name
//              that is being resolved shares its answer. Also SC_NO_MEMORY, from connected too.
//   connected  a connection that met itself, as can happen on a port of one's own machine where
//              nobody listens, is SC_REFUSED.
//   recv       what had arrived before a reset may still be handed out first.
//   explain    tells of the last listen, or dial that ended; before the first dial ends, how far it
//              is. Of several addresses it names the last tried, and says when that is a loopback one.
const struct sc_link *sc_posix_link(struct sc_posix *posix);

#endif
