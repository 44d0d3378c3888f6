// SPDX-License-Identifier: AGPL-3.0-only
//
// cli/model.h on files and names: which files are read, and that the carried models are right.
#include "cli/model.h"

#include "cli/embedded.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct sc_model model;
static char err[1024];

static const char *refuses_file(const char *path) {
    static const struct sc_model untouched = {.name = "untouched"};

    model = untouched;
    assert_int_equal(sc_model_read_file(path, &model, err, sizeof err), -1);
    assert_memory_equal(&model, &untouched, sizeof model);
    assert_null(strchr(err, '\n'));
    assert_memory_equal(err, path, strlen(path));
    return err + strlen(path);
}

static void says(const char *sentence, const char *part) {
    if (strstr(sentence, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", sentence, part);
}

// ---- Files ---------------------------------------------------------------------------------

static char folder[64];
static char file[96];

static int enter_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sc_test_model_XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(file, sizeof file, "%s/config.json", folder);
    return 0;
}

static int leave_folder(void **state) {
    (void)state;
    unlink(file);
    return rmdir(folder);
}

static void write_file(const char *text, size_t bytes) {
    FILE *out = fopen(file, "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

static void files_are_read(void **state) {
    static const char text[] =
        "{\"hidden_size\": 2048, \"num_hidden_layers\": 6, \"num_experts\": 8, "
        "\"num_experts_per_tok\": 2}";

    (void)state;
    write_file(text, sizeof text - 1);
    assert_int_equal(sc_model_read_file(file, &model, err, sizeof err), 0);
    assert_string_equal(model.name, "config.json");
    assert_int_equal(model.hidden_size, 2048);
    assert_int_equal(sc_model_resolve(file, &model, err, sizeof err), 0);
}

static void files_that_are_no_config_are_refused(void **state) {
    (void)state;
    assert_string_equal(refuses_file(file), ": cannot be opened: No such file or directory");
    assert_string_equal(refuses_file(folder), ": is a directory, expected a model's config.json");
    says(refuses_file("/dev/zero"), "is not a regular file");
    write_file("", 0);
    says(refuses_file(file), "is empty, expected a JSON object");
    write_file("{}\0{}", 5);
    says(refuses_file(file), "holds a zero byte at offset 2");
    unlink(file);
    assert_int_equal(mkfifo(file, 0600), 0);
    says(refuses_file(file), "is not a regular file");
}

static void files_too_large_for_a_config_are_refused(void **state) {
    (void)state;
    write_file(" ", 1);
    assert_int_equal(truncate(file, (16 << 20) + 1), 0);
    says(refuses_file(file), "has 16777217 bytes, expected at most 16777216");
    assert_int_equal(truncate(file, 16 << 20), 0);
    says(refuses_file(file), "holds a zero byte at offset 1");
}

// ---- Carried models ------------------------------------------------------------------------

static void carried_models_have_their_published_figures(void **state) {
    static const struct {
        const char *name;
        uint64_t hidden_size, layers, moe_layers, experts, experts_per_token;
    } rows[] = {
        {"qwen3-30b-a3b", 2048, 48, 48, 128, 8},
        {"minimax-m2", 3072, 62, 62, 256, 8},
        {"deepseek-v3", 7168, 61, 58, 256, 8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(sc_model_resolve(rows[i].name, &model, err, sizeof err), 0);
        assert_int_equal(model.hidden_size, rows[i].hidden_size);
        assert_int_equal(model.layers, rows[i].layers);
        assert_int_equal(model.moe_layers, rows[i].moe_layers);
        assert_int_equal(model.experts, rows[i].experts);
        assert_int_equal(model.experts_per_token, rows[i].experts_per_token);
        assert_string_equal(model.dtype, "bfloat16");
    }
}

static void every_carried_model_is_read(void **state) {
    (void)state;
    assert_true(sc_embedded_models_count >= 3);
    for (size_t i = 0; i < sc_embedded_models_count; i++)
        assert_int_equal(sc_model_resolve(sc_embedded_models[i].name, &model, err, sizeof err), 0);
}

static void unknown_names_list_the_carried_models(void **state) {
    (void)state;
    assert_int_equal(sc_model_resolve("deepseek-v9", &model, err, sizeof err), -1);
    says(err, "deepseek-v9: is neither a file nor a model carried by spark-comm (");
    for (size_t i = 0; i < sc_embedded_models_count; i++)
        says(err, sc_embedded_models[i].name);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(files_are_read),
        IN_FOLDER(files_that_are_no_config_are_refused),
        IN_FOLDER(files_too_large_for_a_config_are_refused),
        cmocka_unit_test(carried_models_have_their_published_figures),
        cmocka_unit_test(every_carried_model_is_read),
        cmocka_unit_test(unknown_names_list_the_carried_models),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
