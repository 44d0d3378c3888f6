// SPDX-License-Identifier: AGPL-3.0-only
//
// Reads the key file. The descriptor is judged, not the path, so that nobody can put another file in
// between; and what was read is wiped.
#include "hal/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS (2 * SC_KEY_BYTES)

// ---- whose file it is ----

static sc_status judge(int fd, const char *path, char *why, size_t why_bytes) {
    struct stat found;
    if (fstat(fd, &found) != 0) {
        snprintf(why, why_bytes, "key file %s: %s", path, strerror(errno));
        return SC_KEY;
    }
    const unsigned mode = (unsigned)found.st_mode & 07777;
    if (!S_ISREG(found.st_mode)) {
        snprintf(why, why_bytes, "key file %s is not a regular file; name one that is", path);
        return SC_KEY;
    }
    if (found.st_uid != geteuid() && found.st_uid != 0) {
        snprintf(why, why_bytes,
                 "key file %s belongs to user %u, who could change it; it must belong to user %u, "
                 "who runs this process, or to root: chown it",
                 path, (unsigned)found.st_uid, (unsigned)geteuid());
        return SC_KEY;
    }
    if ((mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0) {
        snprintf(why, why_bytes,
                 "key file %s has mode %04o, so others than its owner can read or write it; run "
                 "chmod 600 %s, and make a new key if others had access",
                 path, mode, path);
        return SC_KEY;
    }
    return SC_OK;
}

// ---- what it says ----

static int value_of(char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

static bool decode(const char *text, size_t bytes, uint8_t key[SC_KEY_BYTES]) {
    if (bytes != DIGITS && !(bytes == DIGITS + 1 && text[DIGITS] == '\n'))
        return false;
    for (size_t i = 0; i < DIGITS; i++)
        if (value_of(text[i]) < 0)
            return false;
    for (size_t i = 0; i < SC_KEY_BYTES; i++)
        key[i] = (uint8_t)(value_of(text[2 * i]) << 4 | value_of(text[2 * i + 1]));
    return true;
}

static sc_status read_key(int fd, const char *path, uint8_t key[SC_KEY_BYTES], char *why,
                          size_t why_bytes) {
    char text[DIGITS + 2]; // one more than may be there
    size_t bytes = 0;
    ssize_t got = 1;
    sc_status status = SC_OK;
    while (bytes < sizeof text && got != 0) {
        got = read(fd, text + bytes, sizeof text - bytes);
        if (got < 0 && errno != EINTR)
            break;
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        snprintf(why, why_bytes, "key file %s: %s", path, strerror(errno));
        status = SC_KEY;
    } else if (!decode(text, bytes, key)) {
        snprintf(
            why, why_bytes,
            "key file %s must hold exactly %u hexadecimal digits and at most one newline after "
            "them; make one with: openssl rand -hex 32",
            path, DIGITS);
        status = SC_KEY;
    }
    explicit_bzero(text, sizeof text);
    return status;
}

sc_status sc_key_read(const char *path, uint8_t key[SC_KEY_BYTES], char *why, size_t why_bytes) {
    if (path == NULL || path[0] == '\0') {
        snprintf(why, why_bytes, "key file: no path is given");
        return SC_INVALID;
    }
    // Without waiting: a pipe in its place must not hold anybody up.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        snprintf(why, why_bytes, "key file %s cannot be opened: %s", path, strerror(errno));
        return SC_KEY;
    }
    sc_status status = judge(fd, path, why, why_bytes);
    if (status == SC_OK)
        status = read_key(fd, path, key, why, why_bytes);
    close(fd);
    return status;
}
