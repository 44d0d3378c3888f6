// SPDX-License-Identifier: AGPL-3.0-only
//
// What hosts say to each other between the collectives: barriers, and commands from rank 0.
#include "tests/support/rig.h"

#include "core/crc32c.h"

#define MS RIG_MS
#define SECOND RIG_SECOND
#define AT_ONCE (20 * MS) // some hops, and well below a heartbeat

// ---- barriers ----

static uint64_t arrive(struct rig *rig, uint32_t rank) {
    uint64_t number = 0;
    assert_int_equal(sc_pump_barrier(rig->ranks[rank].pump, rig_epoch(rig, rank), &number), SC_OK);
    rig_touch(rig, rank);
    return number;
}

static bool all_passed(const struct rig *rig, uint64_t barrier) {
    for (uint32_t r = 0; r < rig->config.core.world; r++)
        if (rig_view(rig, r).passed != barrier)
            return false;
    return true;
}

static void expect_notices(const struct rig *rig, uint32_t count) {
    for (uint32_t r = 0; r < rig->config.core.world; r++)
        assert_int_equal(rig_notices(rig, r, SC_NOTICE_BARRIER), count);
}

// Every order in which the ranks of `left` may come; `order` has those that came before.
static void arrive_in_every_order(struct rig *rig, uint32_t left, uint32_t *order, uint32_t count) {
    for (uint32_t r = 0; r < rig->config.core.world; r++) {
        if (left >> r & 1u) {
            order[count] = r;
            arrive_in_every_order(rig, left & ~(1u << r), order, count + 1);
        }
    }
    if (left != 0)
        return;
    const uint64_t before = rig_view(rig, 0).passed;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(all_passed(rig, before));
        assert_int_equal(arrive(rig, order[i]), before + 1);
        if (i + 1 < count)
            rig_run(rig, i % 2 == 0 ? 0 : SECOND); // on each other's heels, and heartbeats later
    }
    rig_until(rig, AT_ONCE, all_passed(rig, before + 1));
    expect_notices(rig, (uint32_t)before + 1);
}

static void a_barrier_passes_whatever_the_order_of_arrivals(void **state) {
    static const uint64_t orders[] = {0, 1, 2, 6, 24};
    (void)state;
    for (uint32_t world = 1; world <= 4; world++) {
        struct rig *rig = rig_start_world(world);
        uint32_t order[4];
        arrive_in_every_order(rig, (1u << world) - 1, order, 0);
        assert_true(all_passed(rig, orders[world]));
        rig_close(rig);
    }
}

static void no_barrier_passes_without_a_rank_that_died(void **state) {
    (void)state;
    for (uint32_t dead = 0; dead < 3; dead++) {
        struct rig *rig = rig_start_world(3);
        const uint64_t epoch = rig_epoch(rig, 0);
        uint64_t number = 0;
        for (uint32_t r = 0; r < 3; r++)
            if (r != dead)
                assert_int_equal(arrive(rig, r), 1);
        rig_run(rig, SECOND);
        rig_kill(rig, dead);
        for (uint32_t r = 0; r < 3; r++) {
            if (r == dead)
                continue;
            rig_until(rig, SECOND, rig_change(rig, r, SC_STATE_ABORTING) != NULL);
            assert_int_equal(rig_notices(rig, r, SC_NOTICE_BARRIER), 0);
            assert_int_equal(sc_pump_barrier(rig->ranks[r].pump, epoch, &number), SC_EPOCH_LOST);
        }
        assert_int_equal(rig_spawn(rig, dead, NULL), SC_OK);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
        assert_int_equal(arrive(rig, dead), 1); // the others' arrivals went with their epoch
        rig_run(rig, SECOND);
        expect_notices(rig, 0);
        for (uint32_t r = 0; r < 3; r++)
            if (r != dead)
                assert_int_equal(arrive(rig, r), 1);
        rig_until(rig, AT_ONCE, all_passed(rig, 1));
        rig_close(rig);
    }
}

// ---- commands ----

static const uint32_t sizes[] = {0, 1, SC_COMMAND_MAX_BYTES - 1, SC_COMMAND_MAX_BYTES};
#define SIZES (sizeof sizes / sizeof sizes[0])

static struct rig *start_for_commands(uint32_t world) {
    struct rig_config config = rig_config(world);
    config.link_buffer_bytes = SC_FRAME_MAX_BYTES + SC_LINK_RESERVE_BYTES;
    return rig_start(&config);
}

// The bytes of the command of that number; no two are alike.
static const uint8_t *payload(uint32_t number) {
    static uint8_t bytes[SC_COMMAND_MAX_BYTES];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256 + number);
    return bytes;
}

static sc_status send(struct rig *rig, uint32_t number, uint32_t bytes) {
    sc_status status =
        sc_pump_command(rig->ranks[0].pump, rig_epoch(rig, 0), payload(number), bytes);
    rig_touch(rig, 0);
    return status;
}

static sc_status take(struct rig *rig, uint32_t rank, uint64_t epoch, uint32_t bytes) {
    sc_status status = sc_pump_command_taken(rig->ranks[rank].pump, epoch, sc_command_cost(bytes));
    rig_touch(rig, rank);
    return status;
}

// A member whose application takes what has come since it last looked.
static void take_all(struct rig *rig, uint32_t rank, uint32_t *taken) {
    const struct rig_rank *of = &rig->ranks[rank];
    for (; *taken < of->commands_count; ++*taken)
        assert_int_equal(take(rig, rank, of->commands[*taken].epoch, of->commands[*taken].bytes),
                         SC_OK);
}

static void expect_command(const struct rig *rig, uint32_t rank, uint32_t at, uint32_t number,
                           uint32_t bytes) {
    const struct rig_rank *of = &rig->ranks[rank];
    assert_true(at < of->commands_count);
    assert_int_equal(of->commands[at].epoch, rig_epoch(rig, rank));
    assert_int_equal(of->commands[at].bytes, bytes);
    assert_int_equal(of->commands[at].crc, sc_crc32c(0, payload(number), bytes));
}

static void commands_reach_every_member_in_order_and_whole(void **state) {
    enum { COMMANDS = 40 };
    struct rig *rig = start_for_commands(3);
    uint32_t taken[2] = {0}, waits = 0;
    (void)state;
    for (uint32_t n = 0; n < COMMANDS; n++) {
        const uint32_t bytes = sizes[n * 7 % 5 % SIZES];
        for (;;) {
            const uint32_t told = rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM);
            const sc_status status = send(rig, n, bytes);
            if (status == SC_OK)
                break;
            assert_int_equal(status, SC_BUSY);
            waits++;
            while (rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM) == told) {
                assert_true(rig_step(rig, rig_now(rig) + AT_ONCE));
                for (uint32_t r = 1; r < 3; r++)
                    take_all(rig, r, &taken[r - 1]);
            }
        }
    }
    rig_until(rig, AT_ONCE,
              rig->ranks[1].commands_count == COMMANDS && rig->ranks[2].commands_count == COMMANDS);
    for (uint32_t n = 0; n < COMMANDS; n++)
        for (uint32_t r = 1; r < 3; r++)
            expect_command(rig, r, n, n, sizes[n * 7 % 5 % SIZES]);
    assert_true(waits > 5);
    assert_int_equal(rig->ranks[0].commands_count, 0);
    rig_close(rig);
}

static void a_member_that_takes_nothing_makes_the_sender_wait_until_it_does(void **state) {
    struct rig *rig = start_for_commands(3);
    const uint64_t epoch = rig_epoch(rig, 0);
    uint32_t taken = 0;
    (void)state;
    assert_int_equal(send(rig, 0, SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(rig, 1, SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(rig, 2, 0), SC_BUSY);
    rig_run(rig, SECOND);
    take_all(rig, 2, &taken);
    rig_run(rig, AT_ONCE);
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM), 1);
    assert_int_equal(send(rig, 2, 0), SC_BUSY); // rank 1 still has both
    rig_run(rig, 3600 * SECOND);
    assert_true(rig_is_ready(rig)); // nothing is wrong with waiting
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM), 1);
    assert_int_equal(send(rig, 2, 0), SC_BUSY);
    assert_int_equal(take(rig, 1, epoch, SC_COMMAND_MAX_BYTES), SC_OK);
    rig_until(rig, AT_ONCE, rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM) == 2);
    assert_int_equal(send(rig, 2, SC_COMMAND_MAX_BYTES), SC_OK);
    assert_int_equal(send(rig, 3, 0), SC_BUSY);
    rig_until(rig, AT_ONCE, rig->ranks[1].commands_count == 3);
    expect_command(rig, 1, 2, 2, SC_COMMAND_MAX_BYTES);
    rig_close(rig);
}

static void
what_is_on_its_way_when_an_epoch_ends_is_dropped_and_the_next_has_all_room(void **state) {
    struct rig *rig = start_for_commands(2);
    (void)state;
    for (int i = 0; i < 3; i++) {
        const uint64_t epoch = rig_epoch(rig, 0);
        const uint32_t before = rig->ranks[1].commands_count;
        assert_int_equal(send(rig, 0, SC_COMMAND_MAX_BYTES), SC_OK);
        rig_until(rig, AT_ONCE, rig->ranks[1].commands_count == before + 1);
        assert_int_equal(send(rig, 1, SC_COMMAND_MAX_BYTES), SC_OK); // on its way
        assert_int_equal(send(rig, 2, SC_COMMAND_MAX_BYTES), SC_BUSY);
        rig_reconnect(rig, 1);
        rig_until(rig, 5 * SECOND, rig_is_ready_after(rig, epoch));
        assert_int_equal(rig->ranks[1].commands_count, before + 1);
        assert_int_equal(take(rig, 1, epoch, SC_COMMAND_MAX_BYTES), SC_EPOCH_LOST);
        assert_int_equal(sc_pump_command(rig->ranks[0].pump, epoch, payload(0), 1), SC_EPOCH_LOST);
    }
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM), 0);
    rig_close(rig);
}

static void a_link_that_holds_no_more_is_busy_until_it_does(void **state) {
    struct rig *rig = start_for_commands(2);
    (void)state;
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(rig_all_reduce(rig, r, rig_alloc(rig, r, 64), 64, 0).status, SC_OK);
    // While rank 1 stands still, each word to it stays on the link.
    sc_sim_pause(rig->ranks[1].process);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(rig_sync(rig, 0, 1), SC_OK);
    uint32_t longest = SC_COMMAND_MAX_BYTES;
    assert_int_equal(send(rig, 0, longest), SC_BUSY);
    while (send(rig, 0, longest) == SC_BUSY)
        longest -= 256;
    assert_int_equal(send(rig, 1, 1024), SC_BUSY);
    rig_run(rig, 1500 * MS); // heartbeats still fit behind it
    assert_true(rig_is_ready(rig));
    assert_int_equal(rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM), 0);
    sc_sim_resume(rig->ranks[1].process);
    rig_until(rig, AT_ONCE, rig_notices(rig, 0, SC_NOTICE_COMMAND_ROOM) == 1);
    assert_int_equal(send(rig, 1, 1024), SC_OK);
    rig_until(rig, AT_ONCE, rig->ranks[1].commands_count == 2);
    expect_command(rig, 1, 0, 0, longest);
    expect_command(rig, 1, 1, 1, 1024);
    rig_close(rig);
}

static void a_command_that_no_link_could_ever_hold_is_too_large(void **state) {
    struct rig_config config = rig_config(2);
    (void)state;
    config.link_buffer_bytes = SC_COMMAND_FRAME_BYTES(100) + SC_LINK_RESERVE_BYTES;
    struct rig *rig = rig_start(&config);
    assert_int_equal(send(rig, 0, 101), SC_TOO_LARGE);
    assert_int_equal(send(rig, 0, SC_COMMAND_MAX_BYTES), SC_TOO_LARGE);
    assert_int_equal(send(rig, 0, SC_COMMAND_MAX_BYTES + 1), SC_INVALID);
    assert_int_equal(send(rig, 0, 100), SC_OK);
    rig_until(rig, AT_ONCE, rig->ranks[1].commands_count == 1);
    expect_command(rig, 1, 0, 0, 100);
    rig_close(rig);
}

static void a_lone_rank_commands_nobody(void **state) {
    struct rig *rig = start_for_commands(1);
    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(send(rig, i, SC_COMMAND_MAX_BYTES), SC_OK);
    rig_run(rig, SECOND);
    assert_int_equal(rig->ranks[0].commands_count, 0);
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_teardown(name, rig_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_barrier_passes_whatever_the_order_of_arrivals),
        TEST(no_barrier_passes_without_a_rank_that_died),
        TEST(commands_reach_every_member_in_order_and_whole),
        TEST(a_member_that_takes_nothing_makes_the_sender_wait_until_it_does),
        TEST(what_is_on_its_way_when_an_epoch_ends_is_dropped_and_the_next_has_all_room),
        TEST(a_link_that_holds_no_more_is_busy_until_it_does),
        TEST(a_command_that_no_link_could_ever_hold_is_too_large),
        TEST(a_lone_rank_commands_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
