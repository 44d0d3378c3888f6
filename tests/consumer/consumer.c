// SPDX-License-Identifier: AGPL-3.0-only
//
// A program that uses the installed library as anybody would: it finds the library to be the one it
// was compiled for, whose version is its argument, and opens a world of one, or is told why there is
// none on this machine. Prints that, or what is wrong.
#include <spark_comm.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(int holds, const char *what) {
    if (!holds) {
        printf("consumer: not so: %s; last error: %s\n", what, sc_last_error());
        failures++;
    }
}

#define CHECK(condition) check(condition, #condition)
#define CHECK_BYTES(name) CHECK(sc_struct_bytes(#name) == sizeof(struct name))

int main(int argc, char **argv) {
    struct sc_config config;
    sc_comm comm = 0;
    sc_status opened;

    CHECK(sc_abi() == SC_ABI_VERSION);
    CHECK(argc == 2 && strcmp(sc_version(), argv[1]) == 0);
    CHECK_BYTES(sc_op_desc);
    CHECK_BYTES(sc_cause);
    CHECK_BYTES(sc_phases);
    CHECK_BYTES(sc_rank_record);
    CHECK_BYTES(sc_recovery);
    CHECK_BYTES(sc_note);
    CHECK_BYTES(sc_timing);
    CHECK_BYTES(sc_config);
    CHECK_BYTES(sc_peer_health);
    CHECK_BYTES(sc_health_report);
    CHECK(sc_struct_bytes("sc_unheard_of") == 0);

    sc_config_init(&config, sizeof config);
    CHECK(config.size == sizeof config);
    CHECK(config.world == 2);
    config.world = 1;
    config.master_host = "localhost";
    config.master_port = 29500;
    CHECK(sc_payload_capacity(16, 2048, &config.capacity_bytes) == SC_OK);
    CHECK(config.capacity_bytes == 65536);

    opened = sc_open(&config, &comm);
    if (opened == SC_OK) {
        CHECK(sc_close(comm, SC_CLOSE_FINAL, SC_FOREVER) == SC_OK);
    } else {
        CHECK(opened == SC_UNAVAILABLE);
        CHECK(strlen(sc_last_error()) > 20);
    }
    if (failures == 0)
        printf("%s\n", opened == SC_OK ? "opened" : sc_last_error());
    return failures != 0;
}
