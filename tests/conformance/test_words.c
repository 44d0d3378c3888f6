// SPDX-License-Identifier: AGPL-3.0-only
//
// What the library says of itself, of its answers and of causes.
#include "tests/conformance/conf.h"

#include <string.h>

static bool about_itself(struct bench *b) {
    uint64_t bytes = 77;
    char text[200];
    EQUAL(b, sc_abi(), SC_ABI_VERSION);
    TRUE(b, strchr(sc_version(), '.') != NULL);
    EQUAL(b, sc_struct_bytes("sc_config"), sizeof(struct sc_config));
    EQUAL(b, sc_struct_bytes("sc_recovery"), sizeof(struct sc_recovery));
    EQUAL(b, sc_struct_bytes("nothing"), 0);
    for (int s = 0; s < SC_STATUS_COUNT; s++)
        TRUE(b, sc_status_name((sc_status)s)[0] != '\0' &&
                    sc_status_sentence((sc_status)s)[0] != '\0');
    TRUE(b, strcmp(sc_status_name((sc_status)9999), "UNKNOWN") == 0);
    EQUAL(b, sc_status_class((sc_status)9999), SC_CLASS_TERMINAL);
    TRUE(b, strcmp(sc_state_name(SC_STATE_READY), "ready") == 0);
    TRUE(b, strcmp(sc_op_kind_name(SC_OP_ALL_REDUCE), "all_reduce") == 0);
    OK(b, sc_payload_capacity(8, 4096, &bytes));
    EQUAL(b, bytes, 65536);
    IS(b, sc_payload_capacity(0, 4096, &bytes), SC_INVALID);
    IS(b, sc_payload_capacity(UINT64_MAX, 4096, &bytes), SC_TOO_LARGE);
    EQUAL(b, bytes, 65536);
    struct sc_cause cause = {.code = SC_PEER_DEAD, .suspect = 3};
    TRUE(b, strstr(sc_cause_text(&cause, text, sizeof text), "PEER_DEAD") != NULL);
    return true;
}

static bool about_a_refusal(struct bench *b) {
    uint16_t *buffer;
    DO(conf_buffer(b, 16, &buffer));
    IS(b, sc_all_reduce(b->comm, b->epoch, buffer, CONF_CAPACITY * 2, SC_BF16, b->stream),
       SC_CAPACITY);
    TRUE(b, strstr(sc_last_error(), "sc_all_reduce") != NULL);
    TRUE(b, strstr(sc_last_error(), "CAPACITY") != NULL);
    TRUE(b, strstr(sc_last_error(), "8388608") != NULL);
    return true;
}

const struct conf_test conf_words[] = {
    {.name = "library_tells_of_itself", .run = about_itself, .flags = CONF_OWN},
    {.name = "refusal_says_what_where_and_with_which_values", .run = about_a_refusal},
    {0},
};
