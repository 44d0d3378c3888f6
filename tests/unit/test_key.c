// SPDX-License-Identifier: AGPL-3.0-only
//
// hal/key.h: what a key file must look like, and whose it must be.
#include "hal/key.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGITS "00112233445566778899aabbccddeeff0123456789abcdefFEDCBA9876543210"

static const uint8_t decoded[SC_KEY_BYTES] = {
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10,
};

static char folder[64], path[96], why[512];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/spark_comm_key_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/key", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static void write_file(const char *text, size_t bytes, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void expect_read(const char *at) {
    uint8_t key[SC_KEY_BYTES];
    memset(key, 0x55, sizeof key);
    if (sc_key_read(at, key, why, sizeof why) != SC_OK)
        fail_msg("%s", why);
    assert_memory_equal(key, decoded, sizeof key);
}

// Refused, in these words, with nothing of the file in them, and nothing written.
static void expect_refused(const char *at, const char *words) {
    uint8_t key[SC_KEY_BYTES];
    memset(key, 0x55, sizeof key);
    assert_int_equal(sc_key_read(at, key, why, sizeof why), SC_KEY);
    if (strstr(why, words) == NULL || strstr(why, at) == NULL)
        fail_msg("'%s' does not say '%s' of %s", why, words, at);
    assert_null(strstr(why, "0011"));
    for (uint32_t i = 0; i < sizeof key; i++)
        assert_int_equal(key[i], 0x55);
}

static void key_is_read_with_or_without_a_newline(void **state) {
    (void)state;
    write_file(DIGITS, 64, 0600);
    expect_read(path);
    unlink(path);
    write_file(DIGITS "\n", 65, 0400);
    expect_read(path);
    unlink(path);
}

static void anything_but_64_digits_is_refused(void **state) {
    static const struct {
        const char *text;
        size_t bytes;
    } rows[] = {
        {"", 0},
        {DIGITS, 63},
        {DIGITS "0", 65},
        {DIGITS "\n\n", 66},
        {DIGITS "\r\n", 66},
        {DIGITS "\n" DIGITS "\n", 130},
        {" " DIGITS, 65},
        {"0x112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210", 64},
        {"0011223344556677g899aabbccddeeff0123456789abcdeffedcba9876543210", 64},
        {"00112233445566778899aabbccddeeff\0"
         "123456789abcdeffedcba9876543210",
         64},
        {"00112233445566778899aabbccddeeff0123456789abcdeffedcba987654321\n", 64},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_file(rows[i].text, rows[i].bytes, 0600);
        expect_refused(path, "exactly 64 hexadecimal digits");
        unlink(path);
    }
}

static void file_that_others_can_read_or_write_is_refused(void **state) {
    static const unsigned modes[] = {0640, 0620, 0604, 0602, 0644, 0666};
    char words[64];
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        write_file(DIGITS, 64, modes[i]);
        snprintf(words, sizeof words, "has mode %04o", modes[i]);
        expect_refused(path, words);
        expect_refused(path, "chmod 600");
        unlink(path);
    }
}

static void file_of_another_user_is_refused(void **state) {
    (void)state;
    if (geteuid() != 0)
        skip(); // nobody else can give a file away
    write_file(DIGITS, 64, 0600);
    assert_int_equal(chown(path, 12345, 0), 0);
    expect_refused(path, "belongs to user 12345");
    unlink(path);
}

static void what_is_no_regular_file_is_refused_at_once(void **state) {
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(path, "not a regular file");
    unlink(path);
    expect_refused(folder, "not a regular file");
    expect_refused("/dev/null", "not a regular file");
    expect_refused(path, "No such file");
}

static void link_is_followed_and_the_file_behind_it_judged(void **state) {
    char link[128];
    (void)state;
    snprintf(link, sizeof link, "%s/link", folder);
    write_file(DIGITS, 64, 0600);
    assert_int_equal(symlink(path, link), 0);
    expect_read(link);
    assert_int_equal(chmod(path, 0644), 0);
    expect_refused(link, "has mode 0644");
    unlink(path);
    expect_refused(link, "No such file");
    unlink(link);
}

static void no_path_is_an_invalid_call(void **state) {
    uint8_t key[SC_KEY_BYTES];
    char little[8];
    (void)state;
    assert_int_equal(sc_key_read(NULL, key, why, sizeof why), SC_INVALID);
    assert_int_equal(sc_key_read("", key, why, sizeof why), SC_INVALID);
    assert_int_equal(sc_key_read("", key, little, sizeof little), SC_INVALID);
    assert_string_equal(little, "key fil");
}

static void descriptor_is_closed_again(void **state) {
    (void)state;
    const int before = dup(0);
    assert_true(before >= 0);
    close(before);
    write_file(DIGITS, 64, 0600);
    expect_read(path);
    unlink(path);
    expect_refused(path, "No such file");
    write_file(DIGITS, 64, 0644);
    expect_refused(path, "0644");
    unlink(path);
    const int after = dup(0);
    close(after);
    assert_int_equal(after, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_is_read_with_or_without_a_newline),
        cmocka_unit_test(anything_but_64_digits_is_refused),
        cmocka_unit_test(file_that_others_can_read_or_write_is_refused),
        cmocka_unit_test(file_of_another_user_is_refused),
        cmocka_unit_test(what_is_no_regular_file_is_refused_at_once),
        cmocka_unit_test(link_is_followed_and_the_file_behind_it_judged),
        cmocka_unit_test(no_path_is_an_invalid_call),
        cmocka_unit_test(descriptor_is_closed_again),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
