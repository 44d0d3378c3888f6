// SPDX-License-Identifier: AGPL-3.0-only
//
// What travels on a control link: a header of 16 bytes, then the payload of one kind.
//
//   magic 4 | format 1 | kind 1 | zero 2 | payload length 4 | CRC-32C 4 (over all the rest)
//
// Integers are little-endian. Every length, count and enumerator is bounded, on both ends: a frame
// that decodes is a frame that may be acted upon. The layout of each kind is one function in
// frame.c that both encodes and decodes it.
#ifndef SC_CORE_FRAME_H
#define SC_CORE_FRAME_H

#include "core/config.h"

#include <stddef.h>

#define SC_FRAME_FORMAT 1u     // of the header; never changes, so that a HELLO can always be read
#define SC_PROTOCOL_VERSION 2u // compared in HELLO
#define SC_FRAME_HEADER_BYTES 16u
#define SC_FRAME_MAX_BYTES (SC_FRAME_HEADER_BYTES + 64u + SC_COMMAND_MAX_BYTES)
// No frame that a stranger may send before it is known is longer than this.
#define SC_GREETING_MAX_BYTES 512u
#define SC_NONCE_BYTES 32u
// What the commands that a member has not taken, wherever they are, may cost: two of the longest.
#define SC_COMMAND_WINDOW_BYTES (2u * (16u + SC_COMMAND_MAX_BYTES))
#define SC_DESCRIBE_MAX 32u

// clang-format off
#define SC_FRAME_KINDS(X)                                                                          \
    X(CHALLENGE) /* coordinator, first on every link: prove that you are not a recording */        \
    X(HELLO)     /* member: who I am, and whether an epoch may be offered to me */                 \
    X(WELCOME)   /* coordinator: the slot is yours; my timing rules */                             \
    X(REFUSE)    /* coordinator: no, with the reason and both values */                            \
    X(OFFER)     /* coordinator: join this epoch with this communicator id */                      \
    X(JOINED)    /* member: my communicator is formed and warm */                                  \
    X(GO)        /* coordinator: everyone's is; the epoch lives */                                 \
    X(ABORT)     /* anyone: the epoch is over, and why */                                          \
    X(PING)      /* anyone, always: I live, and this is how far I am */                            \
    X(QUERY)     /* coordinator: our digests differ; describe these ops */                         \
    X(DESCRIBE)  /* member: here they are */                                                       \
    X(COMMAND)   /* coordinator: application bytes, ordered, within an epoch */                    \
    X(BYE)       /* anyone: I am leaving, and why */
// clang-format on

enum sc_frame_kind {
#define SC_FRAME_ENUM(name) SC_FRAME_##name,
    SC_FRAME_KINDS(SC_FRAME_ENUM)
#undef SC_FRAME_ENUM
        SC_FRAME_KIND_COUNT
};

const char *sc_frame_kind_name(enum sc_frame_kind kind);

struct sc_hello {
    uint8_t nonce[SC_NONCE_BYTES]; // of the CHALLENGE on this very link
    uint64_t job;
    uint64_t incarnation;
    uint64_t number;      // rises with each HELLO of an incarnation
    uint64_t seen_epoch;  // highest offered to this incarnation
    uint64_t ready_epoch; // highest in which it was READY
    uint64_t submitted;   // in ready_epoch
    uint64_t completed;   // last non-empty op seen complete, in ready_epoch
    uint64_t mark;
    uint64_t capacity_bytes;
    uint32_t protocol;
    uint32_t rank;
    uint32_t world;
    uint32_t library;
    uint32_t lanes;
    uint32_t able; // 1: clean and ready to be offered an epoch
};

struct sc_ping {
    uint64_t submitted; // seqs in the frame's epoch
    uint64_t started;
    uint64_t completed;
    uint64_t digest;      // D(submitted)
    uint64_t want;        // sender waits until agreement reaches this seq; 0: does not
    uint64_t agreed;      // coordinator: digests of all ranks agree up to this seq
    uint64_t all_started; // coordinator: every rank has started this seq
    uint64_t mark;
    uint64_t barrier;    // barriers: a member has arrived at so many; coordinator: all ranks have
    uint64_t taken;      // member: what the commands that its application took cost
    struct sc_pair pair; // the send or recv that its oldest op is, if it has started
    uint32_t laggard;    // coordinator: a rank that has not started all_started + 1
    uint32_t state;      // enum sc_state of the sender
    uint32_t loading;    // 1: opened, but not yet able to serve
};

struct sc_offer {
    struct sc_cause cause;
    struct sc_phases phases; // detect, agree, abort and wait are set
    uint32_t lane;
    uint32_t world; // entries of ranks that count
    uint8_t id[SC_COMM_ID_BYTES];
    struct sc_rank_record ranks[SC_WORLD_MAX];
};

struct sc_describe {
    uint64_t first; // seq of op[0]
    uint32_t count;
    uint32_t reserved;
    struct sc_op_desc op[SC_DESCRIBE_MAX];
};

struct sc_frame {
    uint32_t kind;
    uint64_t epoch; // 0 where the kind is not of an epoch
    union {
        uint8_t nonce[SC_NONCE_BYTES]; // CHALLENGE
        struct sc_hello hello;
        struct {
            uint64_t incarnation;
            struct sc_timing timing;
        } welcome;
        struct sc_cause cause; // REFUSE, ABORT, BYE
        struct sc_offer offer;
        struct sc_ping ping;
        uint64_t first; // QUERY
        struct sc_describe describe;
        struct {
            uint32_t bytes;
            uint32_t reserved;
            const uint8_t *data; // points into the buffer decoded from, or to the sender's
        } command;
    } u;
};

// Its frame: header, epoch, length, the bytes.
#define SC_COMMAND_FRAME_BYTES(bytes) (SC_FRAME_HEADER_BYTES + 12u + (bytes))

// What a command costs of the window: its bytes in a queue, header and alignment included.
static inline uint64_t sc_command_cost(uint32_t bytes) {
    return 16u + (((uint64_t)bytes + 7u) & ~UINT64_C(7));
}

// Writes the frame; returns its length, at most `capacity`. A frame that breaks its own bounds or
// does not fit is our own error: assertion.
size_t sc_frame_encode(const struct sc_frame *frame, uint8_t *out, size_t capacity);

// Reads one frame from the front of `data`, which may hold less than a frame, or more.
//   SC_OK          *frame is set, *used tells its length; no payload longer than limit was accepted
//   SC_INPROGRESS  more bytes are needed
//   SC_PROTOCOL    not a frame of ours; *why says what is wrong (a literal). Drop the link.
SC_MUST_USE sc_status sc_frame_decode(const uint8_t *data, size_t bytes, size_t limit,
                                      struct sc_frame *frame, size_t *used, const char **why);

#endif
