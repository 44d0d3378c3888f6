// SPDX-License-Identifier: AGPL-3.0-only
//
// Why an epoch ended, how long its replacement took, and what each rank brought along: what an
// application needs to decide which work to do again.
#ifndef SC_CORE_RECOVERY_H
#define SC_CORE_RECOVERY_H

#include "core/op.h"
#include "core/status.h"

#include <stdint.h>

#define SC_RANK_NONE UINT32_MAX

// code and the fields it uses:
//   PEER_DEAD, PEER_SILENT, PEER_BEHIND, LINK_LOST   suspect; seq of the oldest op in flight
//   MISMATCH      suspect, seq, op[0] ours (the coordinator's), op[1] the suspect's
//   FABRIC        seq
//   CONFIG        field (enum sc_config_field), value[0] the coordinator's, value[1] the member's
//   RECONNECT     value[0] the application's reason
//   the others    suspect: the rank where it happened
struct sc_cause {
    uint32_t code; // sc_status
    uint32_t suspect;
    uint64_t seq;
    uint64_t value[2];
    struct sc_op_desc op[2];
    uint32_t field;
    uint32_t reserved;
};

// Durations of one recovery as the coordinator saw it; form and warm-up as this rank saw them.
struct sc_phases {
    uint64_t
        detect_ns; // last sign of life, or start of the stuck op -> evidence; 0 when told at once
    uint64_t agree_ns;  // evidence -> every live rank is known to have left the epoch
    uint64_t abort_ns;  // evidence -> communicator gone, streams clear
    uint64_t wait_ns;   // clean -> every rank present and able
    uint64_t form_ns;   // OFFER -> communicator created
    uint64_t warmup_ns; // created -> GO
};

struct sc_rank_record {
    uint64_t incarnation; // differs from before: the process is a new one
    uint64_t ready_epoch; // last epoch in which this rank was READY; 0: never
    uint64_t submitted;   // seqs within that epoch
    uint64_t completed;
    uint64_t mark;  // the application's last mark
    uint32_t fresh; // 1: a new process since the last record that this application took
    uint32_t reserved;
};

#endif
