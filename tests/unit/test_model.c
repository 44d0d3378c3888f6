// SPDX-License-Identifier: AGPL-3.0-only
//
// cli/model.h on text: the spellings that are read, the layers that count, and the sentence for
// each config that is refused.
#include "cli/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOE "\"num_experts\": 8, \"num_experts_per_tok\": 2"
#define SIZES "\"hidden_size\": 2048, \"num_hidden_layers\": 6"

static struct sc_model model;
static char err[1024];

static struct sc_model reads(const char *text) {
    err[0] = '\0';
    if (sc_model_read_text("dir/x.json", text, &model, err, sizeof err) != 0)
        fail_msg("%s\nrefused: %s", text, err);
    assert_string_equal(err, "");
    return model;
}

static const char *refuses(const char *text) {
    static const struct sc_model untouched = {.name = "untouched"};

    model = untouched;
    assert_int_equal(sc_model_read_text("dir/x.json", text, &model, err, sizeof err), -1);
    assert_memory_equal(&model, &untouched, sizeof model);
    assert_null(strchr(err, '\n'));
    return err;
}

static void says(const char *sentence, const char *part) {
    if (strstr(sentence, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", sentence, part);
}

// ---- What is read --------------------------------------------------------------------------

static void every_figure_is_read(void **state) {
    (void)state;
    reads("{\"_name_or_path\": \"org/m\", \"torch_dtype\": \"bfloat16\", " SIZES "," MOE "}");
    assert_string_equal(model.name, "org/m");
    assert_string_equal(model.dtype, "bfloat16");
    assert_int_equal(model.hidden_size, 2048);
    assert_int_equal(model.layers, 6);
    assert_int_equal(model.moe_layers, 6);
    assert_int_equal(model.experts, 8);
    assert_int_equal(model.experts_per_token, 2);
}

static void every_spelling_is_known(void **state) {
    static const char *const hidden[] = {"hidden_size", "n_embd", "d_model", "dim"};
    static const char *const layers[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};
    static const char *const experts[] = {"\"num_experts\": 8", "\"n_routed_experts\": 8",
                                          "\"num_local_experts\": 8",
                                          "\"moe\": {\"num_experts\": 8}"};
    static const char *const each[] = {"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                       "top_k"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "{\"%s\": 96, \"%s\": 5, %s, \"%s\": 3}", hidden[i], layers[i],
                 experts[i], each[i]);
        reads(text);
        assert_int_equal(model.hidden_size, 96);
        assert_int_equal(model.layers, 5);
        assert_int_equal(model.experts, 8);
        assert_int_equal(model.experts_per_token, 3);
    }
    reads("{" SIZES ", \"moe\": {\"num_experts\": 4, \"top_k\": 1}}");
    assert_int_equal(model.experts_per_token, 1);
}

static void nested_text_models_are_read(void **state) {
    (void)state;
    reads("{\"text_config\": {" SIZES "," MOE "}, \"vision_config\": {\"hidden_size\": 9}}");
    assert_int_equal(model.hidden_size, 2048);
    reads("{\"llm_config\": {" SIZES "," MOE ", \"first_k_dense_replace\": 2}}");
    assert_int_equal(model.moe_layers, 4);
    reads("{\"language_config\": {" SIZES "," MOE "}, \"text_config\": null}");
    assert_int_equal(model.layers, 6);
}

static void top_level_wins_over_nested(void **state) {
    (void)state;
    reads("{\"text_config\": {" SIZES "," MOE "}, \"n_embd\": 64, \"num_layers\": 3}");
    assert_int_equal(model.hidden_size, 64);
    assert_int_equal(model.layers, 3);
    assert_int_equal(model.experts, 8);
}

static void null_is_absent(void **state) {
    (void)state;
    reads("{\"hidden_size\": null, \"dim\": 32, \"num_layers\": 6, \"mlp_only_layers\": null," MOE
          "}");
    assert_int_equal(model.hidden_size, 32);
    says(refuses("{\"hidden_size\": null, \"num_layers\": 6," MOE "}"), "looked for hidden_size");
}

static void name_is_the_first_that_the_config_gives(void **state) {
    (void)state;
    reads("{\"_name_or_path\": \"a\", \"architectures\": [\"b\"], \"model_type\": \"c\"," SIZES
          "," MOE "}");
    assert_string_equal(model.name, "a");
    reads("{\"_name_or_path\": \"\", \"architectures\": [\"b\"], \"model_type\": \"c\"," SIZES
          "," MOE "}");
    assert_string_equal(model.name, "b");
    reads("{\"architectures\": [], \"model_type\": \"c\"," SIZES "," MOE "}");
    assert_string_equal(model.name, "c");
    reads("{" SIZES "," MOE "}");
    assert_string_equal(model.name, "x.json");
}

static void long_or_hostile_names_are_made_safe(void **state) {
    (void)state;
    reads(
        "{\"_name_or_path\": \"a\\n\\u001b[2J\", \"dtype\": \"a_type_longer_than_its_room\"," SIZES
        "," MOE "}");
    assert_string_equal(model.name, "a??[2J");
    assert_string_equal(model.dtype, "a_type_longe...");
    reads("{\"model_type\": "
          "\"0123456789012345678901234567890123456789012345678901234567890123456789\"," SIZES
          "," MOE "}");
    assert_int_equal(strlen(model.name), sizeof model.name - 1);
}

// ---- Which layers count --------------------------------------------------------------------

static void layers_with_experts_are_counted(void **state) {
    static const struct {
        const char *rule;
        uint64_t moe_layers; // of 6
    } rows[] = {
        {"\"first_k_dense_replace\": 0", 6},
        {"\"first_k_dense_replace\": 1", 5},
        {"\"mlp_only_layers\": []", 6},
        {"\"mlp_only_layers\": [0, 3, 3]", 4},
        {"\"moe_layers\": [1, 5]", 2},
        {"\"decoder_sparse_step\": 1", 6},
        {"\"decoder_sparse_step\": 2", 3},       // 1 3 5
        {"\"decoder_sparse_step\": 4", 1},       // 3
        {"\"interleave_moe_layer_step\": 4", 1}, // 3
        {"\"moe_layer_freq\": 1", 6},
        {"\"moe_layer_freq\": 4", 2}, // 0 4
        {"\"moe_layer_freq\": [0, 1, 1, 1, 0, 1]", 4},
        {"\"decoder_sparse_step\": [0, 0, 0, 0, 0, 1]", 1},
        {"\"first_k_dense_replace\": 3, \"moe_layer_freq\": 2", 1},  // 4
        {"\"mlp_only_layers\": [1], \"decoder_sparse_step\": 2", 2}, // 3 5
        {"\"moe_layers\": [1, 5], \"mlp_only_layers\": [5]", 1},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "{%s, %s, %s}", SIZES, MOE, rows[i].rule);
        reads(text);
        if (model.moe_layers != rows[i].moe_layers)
            fail_msg("%s: %ju layers", rows[i].rule, (uintmax_t)model.moe_layers);
    }
}

static void wrong_layer_rules_are_refused(void **state) {
    static const struct {
        const char *rule;
        const char *sentence;
    } rows[] = {
        {"\"first_k_dense_replace\": 7",
         "first_k_dense_replace is 7, expected a whole number from 0 to 6"},
        {"\"first_k_dense_replace\": 6", "leaves none of its 6 layers with experts"},
        {"\"mlp_only_layers\": 3", "mlp_only_layers is 3, expected a list of layer numbers"},
        {"\"mlp_only_layers\": [0, 6]",
         "mlp_only_layers[1] is 6, expected a whole number from 0 to 5"},
        {"\"mlp_only_layers\": [0, \"1\"]", "mlp_only_layers[1] is the text \"1\", expected"},
        {"\"moe_layers\": []", "leaves none of its 6 layers with experts"},
        {"\"moe_layers\": [-1]", "moe_layers[0] is -1, expected a whole number from 0 to 5"},
        {"\"decoder_sparse_step\": 0",
         "decoder_sparse_step is 0, expected a whole number from 1 to 10000"},
        {"\"decoder_sparse_step\": true", "decoder_sparse_step is true, expected"},
        {"\"interleave_moe_layer_step\": 7", "leaves none of its 6 layers with experts"},
        {"\"moe_layer_freq\": {}", "moe_layer_freq is an object, expected"},
        {"\"moe_layer_freq\": [1, 1]",
         "moe_layer_freq lists 2 layers, expected one entry for each of the 6"},
        {"\"moe_layer_freq\": [1, 1, 1, 2, 1, 1]",
         "moe_layer_freq[3] is 2, expected a whole number from 0 to 1"},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "{%s, %s, %s}", SIZES, MOE, rows[i].rule);
        says(refuses(text), rows[i].sentence);
    }
}

// ---- What is refused -----------------------------------------------------------------------

static void figures_outside_their_bounds_are_refused(void **state) {
    static const struct {
        const char *value;
        const char *shown;
    } rows[] = {
        {"-5", "-5"},           {"0", "0"},
        {"1048577", "1048577"}, {"2048.5", "2048.5"},
        {"1e30", "1e+30"},      {"1e400", "inf"},
        {"true", "true"},       {"[]", "a list"},
        {"{}", "an object"},    {"\"2048\"", "the text \"2048\""},
    };
    char text[256];
    char sentence[256];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "{\"hidden_size\": %s, \"num_layers\": 6, %s}", rows[i].value,
                 MOE);
        snprintf(sentence, sizeof sentence,
                 "dir/x.json: hidden_size is %s, expected a whole number from 1 to 1048576",
                 rows[i].shown);
        assert_string_equal(refuses(text), sentence);
    }
    says(refuses("{\"hidden_size\": 8, \"n_layer\": 10001," MOE "}"),
         "n_layer is 10001, expected a whole number from 1 to 10000");
    says(refuses("{" SIZES ", \"moe\": {\"num_experts\": 0}}"), "moe.num_experts is 0, expected");
}

static void figures_at_their_bounds_are_read(void **state) {
    (void)state;
    reads("{\"hidden_size\": 1048576, \"num_layers\": 10000," MOE "}");
    assert_int_equal(model.hidden_size, SC_MODEL_HIDDEN_MAX);
    assert_int_equal(model.moe_layers, SC_MODEL_LAYERS_MAX);
    reads("{\"hidden_size\": 1, \"num_layers\": 1, \"num_experts\": 1, \"top_k\": 1}");
    assert_int_equal(model.moe_layers, 1);
}

static void more_experts_a_token_than_experts_are_refused(void **state) {
    (void)state;
    says(refuses("{" SIZES ", \"num_experts\": 4, \"num_experts_per_tok\": 5}"),
         "num_experts_per_tok is 5, expected a whole number from 1 to 4");
}

static void missing_figures_name_every_spelling(void **state) {
    (void)state;
    assert_string_equal(
        refuses("{\"num_layers\": 6," MOE "}"),
        "dir/x.json: does not say the hidden size; looked for hidden_size, n_embd, d_model and "
        "dim");
    says(refuses("{\"hidden_size\": 6," MOE "}"),
         "looked for num_hidden_layers, n_layer, n_layers and num_layers");
    says(refuses("{" SIZES "}"), "no mixture-of-experts model; looked for num_experts, "
                                 "n_routed_experts, num_local_experts and moe.num_experts");
    says(refuses("{" SIZES ", \"num_experts\": 8}"),
         "looked for num_experts_per_tok, num_experts_per_token, moe_topk, moe.top_k and top_k");
}

static void fields_of_the_wrong_kind_are_refused(void **state) {
    (void)state;
    says(refuses("{\"text_config\": 5}"), "text_config is 5, expected an object");
    says(refuses("{\"torch_dtype\": 16," SIZES "," MOE "}"), "torch_dtype is 16, expected a text");
    says(refuses("[1]"), "the document is a list, expected a JSON object");
    says(refuses("7"), "the document is 7, expected a JSON object");
    says(refuses("null"), "the document is null, expected a JSON object");
}

static void keys_given_twice_are_refused(void **state) {
    (void)state;
    says(refuses("{\"hidden_size\": 8," SIZES "," MOE "}"), "hidden_size is given twice");
    says(refuses("{" SIZES ", \"moe\": {}, \"moe\": {}}"), "moe is given twice");
}

static void broken_json_is_refused_with_its_line_and_column(void **state) {
    (void)state;
    assert_string_equal(refuses("{\n  \"hidden_size\": }\n"),
                        "dir/x.json: line 2, column 18: not valid JSON at '}'");
    says(refuses("{\"a\": \"\xc3\xa9\" \"b\"}"), "line 1, column 11: not valid JSON at '\"'");
    says(refuses("{\"a\": 1,\n\"b\": [1, 2"), "line 2, column 11: the text ends inside its JSON");
    says(refuses("{\"hidden_size\": NaN}"), "line 1, column 17: not valid JSON at 'N'");
    says(refuses("{} {}"), "line 1, column 4: not valid JSON at '{'");
    says(refuses("\xff{}"), "line 1, column 1: not valid JSON at byte 0xff");
}

static void empty_text_is_refused(void **state) {
    (void)state;
    says(refuses(""), "dir/x.json: is empty, expected a JSON object");
    says(refuses(" \n\t\n"), "is empty, expected a JSON object");
}

static void deep_nesting_is_refused(void **state) {
    char text[5000];
    size_t half = (sizeof text - 2) / 2;

    (void)state;
    memset(text, '[', half);
    memset(text + half, ']', half);
    text[2 * half] = '\0';
    says(refuses(text), "line 1, column 65: nested deeper than 64 levels");
    memset(text, '[', half);
    text[half] = '\0';
    says(refuses(text), "nested deeper than 64 levels");
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    says(refuses(text), "the document is a list");
    memcpy(text, "\"\\\"", 3);
    memset(text + 3, '[', 100);
    memcpy(text + 103, "\"", 2);
    says(refuses(text), "the document is the text");
}

static void sentences_are_cut_to_their_room(void **state) {
    char small[16] = "";

    (void)state;
    assert_int_equal(sc_model_read_text("x.json", "{", &model, small, sizeof small), -1);
    assert_string_equal(small, "x.json: line 1,");
    assert_int_equal(sc_model_read_text("x.json", "{", &model, NULL, 0), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_figure_is_read),
        cmocka_unit_test(every_spelling_is_known),
        cmocka_unit_test(nested_text_models_are_read),
        cmocka_unit_test(top_level_wins_over_nested),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(name_is_the_first_that_the_config_gives),
        cmocka_unit_test(long_or_hostile_names_are_made_safe),
        cmocka_unit_test(layers_with_experts_are_counted),
        cmocka_unit_test(wrong_layer_rules_are_refused),
        cmocka_unit_test(figures_outside_their_bounds_are_refused),
        cmocka_unit_test(figures_at_their_bounds_are_read),
        cmocka_unit_test(more_experts_a_token_than_experts_are_refused),
        cmocka_unit_test(missing_figures_name_every_spelling),
        cmocka_unit_test(fields_of_the_wrong_kind_are_refused),
        cmocka_unit_test(keys_given_twice_are_refused),
        cmocka_unit_test(broken_json_is_refused_with_its_line_and_column),
        cmocka_unit_test(empty_text_is_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(sentences_are_cut_to_their_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
