// SPDX-License-Identifier: AGPL-3.0-only
//
// One core on a bench: the test is its network, its device, its application and its clock.
//
// There is one rig a program. Every event is fed a microsecond after the one before; TICKs come
// exactly when the test says. What the last step wanted is in rig.last, and every frame of it has
// been composed, encoded and decoded again: a core never wants to send what cannot be sent.
#ifndef SC_TESTS_SUPPORT_CORE_RIG_H
#define SC_TESTS_SUPPORT_CORE_RIG_H

#include "core/core.h"

#define RIG_MS UINT64_C(1000000)
#define RIG_SECOND (1000 * RIG_MS)
#define RIG_CAPACITY_BYTES UINT64_C(65536)
#define RIG_JOB 77u
#define RIG_STREAM 0x51u

// The other end of a link: a member as the coordinator under test knows it, or, as rank 0, the
// coordinator that a member under test talks to.
struct core_rig_rank {
    uint64_t link; // of the last connection; 0: none yet
    uint64_t incarnation;
    uint64_t hello_number;
    uint64_t seen_epoch;
    uint64_t ready_epoch;
    uint8_t nonce[SC_NONCE_BYTES];
};

struct core_rig {
    struct sc_core_config config;
    struct sc_core *core; // NULL: not open
    uint64_t now_ns;
    uint64_t epoch; // the last one offered
    uint64_t next_link;
    sc_status verdict;
    struct sc_actions last;
    struct sc_frame sent[SC_ACTIONS_MAX]; // sent[i] is the frame of last.list[i], if that is a SEND
    struct core_rig_rank ranks[SC_WORLD_MAX];
};

extern struct core_rig rig;

// ---- open and close ----

// The config of tests: a ledger of 16, the timing of production, silence 2 s, heartbeat 100 ms.
struct sc_core_config core_rig_config(uint32_t rank, uint32_t world);
// Opens a core, after closing the one before. Nothing has been fed to it.
void core_rig_open(uint32_t rank, uint32_t world);
void core_rig_open_config(const struct sc_core_config *config, uint64_t seed);
// Frees the core; the group teardown of every program that uses the rig.
int core_rig_close(void **state);

// ---- events ----

// Feeds one event at rig.now_ns + 1 us (a TICK: at rig.now_ns); returns the verdict.
sc_status core_rig_feed(struct sc_event event);
sc_status core_rig_start(void);
sc_status core_rig_tick(void);
// Lets time pass, then ticks once.
sc_status core_rig_wait(uint64_t ns);
// Lets time pass in heartbeats, with a PING from every greeted link in each, until the state is
// another one or the time is over. The core's deadlines are kept.
void core_rig_live(uint64_t ns);
sc_status core_rig_simple(enum sc_event_type type, uint64_t epoch); // an event with no more to it
sc_status core_rig_op(enum sc_event_type type, uint64_t number);    // of the live epoch
sc_status core_rig_op_failed(uint64_t number, sc_status status);
sc_status core_rig_comm_failed(sc_status status);
sc_status core_rig_comm_id(sc_status status);
sc_status core_rig_captures(uint32_t held);
sc_status core_rig_close_core(bool final);
sc_status core_rig_submit(uint32_t kind, uint64_t bytes); // to RIG_STREAM, in the live epoch
sc_status core_rig_submit_on(uint64_t stream);            // an all_reduce of 4096 bytes

// ---- links and frames ----

uint64_t core_rig_accept(void); // LINK_UP of a stranger; returns its link
sc_status core_rig_link_down(uint64_t link);
sc_status core_rig_frame(uint64_t link, const struct sc_frame *frame);
sc_status core_rig_from(uint32_t rank, const struct sc_frame *frame); // on that rank's link
sc_status core_rig_plain(uint32_t rank, enum sc_frame_kind kind, uint64_t epoch); // without payload
sc_status core_rig_abort_from(uint32_t rank, uint64_t epoch, sc_status code);
sc_status core_rig_bye_from(uint32_t rank, sc_status code);
// A PING of that rank in READY: so many seqs submitted and started, with this digest.
sc_status core_rig_ping_from(uint32_t rank, uint64_t submitted, uint64_t started, uint64_t digest,
                             uint64_t want);

// The HELLO that `rank` would say next on its link: able, and equal in all that is compared.
struct sc_frame core_rig_hello(uint32_t rank);
// Connects `rank` anew and takes the CHALLENGE; says nothing yet.
void core_rig_connect(uint32_t rank);
// Connects and greets: at the coordinator, HELLO -> WELCOME; a member's rank is 0.
void core_rig_greet(uint32_t rank);
// Member: from DIAL on. Up to having sent HELLO, and the answer.
void core_rig_dialled(void);
void core_rig_welcome(void);
struct sc_frame core_rig_offer(uint64_t epoch);

// ---- from a fresh core to a state ----

void core_rig_rendezvous(void); // START and, at the coordinator, nobody there; at a member, greeted
void core_rig_joining(void);    // everybody greeted and the OFFER out
void core_rig_ready(void);      // … and the epoch live
void core_rig_clean(void);      // ABORTING: the abort returns
void core_rig_recover(void);    // … and the next epoch lives

// ---- what the last step wanted ----

struct sc_core_view core_rig_view(void);

#define expect_action(type) core_rig_expect_action((type), __FILE__, __LINE__)
#define expect_no_action(type) core_rig_expect_no_action((type), __FILE__, __LINE__)
#define expect_frame(kind) core_rig_expect_frame((kind), __FILE__, __LINE__)
#define expect_no_frame(kind) core_rig_expect_no_frame((kind), __FILE__, __LINE__)
#define expect_notice(kind) core_rig_expect_notice((kind), __FILE__, __LINE__)
#define expect_state(state) core_rig_expect_state((state), __FILE__, __LINE__)
#define expect_quiet() core_rig_expect_quiet(__FILE__, __LINE__)

// The first action of that type, frame of that kind or notice of that kind; a failure prints all.
const struct sc_action *core_rig_expect_action(enum sc_action_type type, const char *file,
                                               int line);
void core_rig_expect_no_action(enum sc_action_type type, const char *file, int line);
const struct sc_frame *core_rig_expect_frame(enum sc_frame_kind kind, const char *file, int line);
void core_rig_expect_no_frame(enum sc_frame_kind kind, const char *file, int line);
const struct sc_action *core_rig_expect_notice(enum sc_notice kind, const char *file, int line);
void core_rig_expect_state(enum sc_state state, const char *file, int line);
void core_rig_expect_quiet(const char *file, int line);
// The SEND action of a frame kind, for its mask or link; NULL when there is none.
const struct sc_action *core_rig_send_of(enum sc_frame_kind kind);
uint32_t core_rig_count(enum sc_action_type type);
// Where in the list the first action of a type (or SEND of a kind) stands; -1 when nowhere.
int core_rig_index(enum sc_action_type type);
int core_rig_index_of_frame(enum sc_frame_kind kind);

#endif
