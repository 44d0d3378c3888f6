// SPDX-License-Identifier: AGPL-3.0-only
//
// A link table that seals another: below it bytes that anybody may see, above it bytes of peers that
// have proved the key of the job. core/seal.h says by which messages, and why they hold.
//
// It allocates everything at create, for SC_SEALED_LINKS_MAX links at a time of 9 KiB each: what a
// coordinator of the largest world needs. Handles are those of the table below. One thread at a time.
#ifndef SC_HAL_SEALED_H
#define SC_HAL_SEALED_H

#include "hal/hal.h"

#define SC_SEALED_LINKS_MAX 88u    // ranks, links not yet greeted, links being given up
#define SC_SEALED_EARLY_BYTES 512u // kept for a peer that has not proved the key yet

struct sc_sealed;

// `inner` and `host` (its entropy, its wake) are borrowed; the key is copied. SC_NO_MEMORY;
// SC_UNAVAILABLE when the cryptographic library does not start.
SC_MUST_USE sc_status sc_sealed_create(const struct sc_link *inner, const struct sc_host *host,
                                       const uint8_t key[SC_KEY_BYTES], struct sc_sealed **out);

// Forgets all keys and frees the object; its links below are left as they are. NULL is allowed.
void sc_sealed_destroy(struct sc_sealed *sealed);

// Lives as long as the object. Beyond what hal.h says:
//   accept     hands a link out before its peer has proved anything. Where links or random bytes run
//              out, newcomers are closed rather than left hanging.
//   dial       also SC_DEVICE_ERROR: no random bytes.
//   connected  SC_OK once the peer has proved the key; SC_KEY when it did not.
//   send       until the peer has proved the key, up to SC_SEALED_EARLY_BYTES are kept and told to
//              nobody; then SC_INPROGRESS. What is sealed and cannot be sent yet goes out at a later
//              send or recv of the link.
//   recv       moves the handshake on. SC_KEY when the peer does not prove the key; SC_PROTOCOL when
//              its bytes are not those that it sealed.
//   close      seals an end, so that the peer can tell it from a cut, if that can be sent at once.
//   explain    begins with why the last handshake failed, if it was a matter of the key.
const struct sc_link *sc_sealed_link(struct sc_sealed *sealed);

#endif
