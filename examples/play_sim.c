// SPDX-License-Identifier: AGPL-3.0-only
//
// The clients of each life of each rank, what they saw, and the verdict on it.
#include "play_sim.h"

#include "gpu_sim.h"
#include "script.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define EPOCHS_MAX 8u
#define GPUS_MAX 64u
#define SECOND UINT64_C(1000000000)

// One epoch, as rank 0 entered it; or rank 1, if rank 0 did not come so far.
struct epoch {
    struct sc_recovery record;
    uint32_t first, count;    // of the positions to be computed, and of the conversation
    bool forgot;              // more than the last token that was told already
    uint64_t silent_since_ns; // no new token since then; 0: there was none before
    uint64_t token_at_ns;     // the first new one in it; 0: none
};

struct play {
    const struct settings *settings;
    struct story_play story;
    struct script script;
    pthread_mutex_t lock; // of what follows; under the real clock ranks run at once
    uint32_t epochs_count;
    struct epoch epochs[EPOCHS_MAX];
    uint32_t grown;         // behind the last position that any rank told
    uint64_t grown_at_ns;   // and when it was told first
    bool left[MODEL_RANKS]; // one of its processes did, asked to
    struct gpu *gpus[GPUS_MAX];
    uint32_t gpus_count;
    struct sc_sim_report report;
};

struct life {
    struct play *play;
    struct sc_sim_rank *rank;
    uint32_t number;
    uint32_t answers; // told in this life
    uint32_t waited;  // turns that it has waited for
};

// ---- the clients of one life -------------------------------------------------------------------

static sc_status load(void *arg, uint32_t rank, model_weights weights) {
    struct life *life = arg;

    for (uint32_t layer = 0; layer < MODEL_LAYERS; layer++)
        for (uint32_t i = 0; i < MODEL_HIDDEN; i++)
            weights[layer][i] = model_weight(rank, layer, i);
    return sc_sim_rank_sleep(life->rank, (2 + rank) * SECOND);
}

static enum engine_next next(void *arg, uint32_t count, uint32_t *prompt, uint32_t *prompt_count) {
    struct life *life = arg;
    uint32_t turn;
    enum engine_next what = script_next(&life->play->script, count, &turn, prompt, prompt_count);

    return what == ENGINE_PROMPT && life->waited < turn ? ENGINE_WAIT : what;
}

static sc_status wait(void *arg) {
    struct life *life = arg;

    life->waited++;
    return sc_sim_rank_sleep(life->rank, life->play->story.idle_ns);
}

static bool leaving(void *arg) {
    const struct life *life = arg;
    uint32_t after = life->play->story.leaves_after[life->number];

    return after != 0 && sc_sim_rank_life(life->rank) == 1 && life->answers >= after;
}

// NULL before the first.
static struct epoch *newest_epoch(struct play *play) {
    return play->epochs_count != 0 ? &play->epochs[play->epochs_count - 1] : NULL;
}

static void on_epoch(void *arg, const struct sc_recovery *record, const struct model_input *input) {
    struct life *life = arg;
    struct play *play = life->play;

    pthread_mutex_lock(&play->lock);
    struct epoch *epoch = newest_epoch(play);
    bool is_new = epoch == NULL || epoch->record.epoch != record->epoch;

    if (is_new && play->epochs_count < EPOCHS_MAX) { // no story has so many
        play->epochs_count++;
        epoch = newest_epoch(play);
        epoch->silent_since_ns = play->grown_at_ns;
    }
    if (is_new || record->cause.code != SC_OK) // a rank 0 that was started again knows of no loss
        epoch->record = *record;
    if (is_new || life->number == 0) {
        epoch->first = input->first;
        epoch->count = input->first + input->rows;
        epoch->forgot = epoch->count + 1 < play->grown; // the last only the dead may have known
    }
    pthread_mutex_unlock(&play->lock);
}

static void on_token(void *arg, uint32_t position, uint32_t token) {
    struct life *life = arg;
    struct play *play = life->play;
    uint64_t now_ns = sc_sim_rank_now_ns(life->rank);

    life->answers++;
    pthread_mutex_lock(&play->lock);
    struct epoch *epoch = newest_epoch(play);

    script_check(&play->script, life->number, position, token);
    if (position >= play->grown) {
        play->grown = position + 1;
        play->grown_at_ns = now_ns;
        if (epoch != NULL && epoch->token_at_ns == 0)
            epoch->token_at_ns = now_ns;
    }
    pthread_mutex_unlock(&play->lock);
}

static void say(void *arg, const char *text) {
    struct life *life = arg;

    if (life->play->settings->trace)
        printf("engine, rank %u: %s\n", life->number, text);
}

static struct gpu *open_gpu(struct play *play, struct sc_sim_rank *rank) {
    struct gpu *gpu = NULL;

    pthread_mutex_lock(&play->lock);
    if (play->gpus_count < GPUS_MAX)
        gpu = gpu_sim_open(rank);
    if (gpu != NULL)
        play->gpus[play->gpus_count++] = gpu;
    pthread_mutex_unlock(&play->lock);
    return gpu;
}

static int rank_main(struct sc_sim_rank *rank, void *arg) {
    struct play *play = arg;
    struct life life = {.play = play, .rank = rank, .number = sc_sim_rank_number(rank)};
    const struct engine_client client = {.arg = &life,
                                         .load = load,
                                         .next = next,
                                         .wait = wait,
                                         .leaving = leaving,
                                         .on_epoch = on_epoch,
                                         .on_token = on_token,
                                         .say = say};
    struct gpu *gpu = open_gpu(play, rank);
    struct sc_config config;

    if (gpu == NULL)
        return ENGINE_BROKEN;
    sc_config_init(&config, sizeof config);
    sc_sim_rank_config(rank, &config);
    enum engine_exit code = engine_run(gpu, &config, &client, play->settings->captured);
    pthread_mutex_lock(&play->lock);
    play->left[life.number] |= code == ENGINE_LEFT;
    pthread_mutex_unlock(&play->lock);
    return (int)code;
}

// ---- the verdict -------------------------------------------------------------------------------

static bool refills(const struct play *play) {
    bool refills = false;

    for (uint32_t i = 1; i < play->epochs_count; i++)
        refills |= play->epochs[i].first == 0;
    return refills;
}

static bool forgets(const struct play *play) {
    bool forgets = false;

    for (uint32_t i = 1; i < play->epochs_count; i++)
        forgets |= play->epochs[i].forgot;
    return forgets;
}

// What is wrong with one rank, in words; "" when nothing is.
static void judge_rank(const struct play *play, uint32_t rank, char *wrong, size_t bytes) {
    const struct sc_sim_report *report = &play->report;
    uint32_t answered = script_answered(&play->script, rank);

    if (answered != play->settings->answers)
        snprintf(wrong, bytes, "rank %u told %u of %u tokens", rank, answered,
                 play->settings->answers);
    else if (report->exit_code[rank] != ENGINE_DONE)
        snprintf(wrong, bytes, "rank %u ended with %" PRId32, rank, report->exit_code[rank]);
    else if (!play->story.unforeseen && report->lives[rank] != play->story.lives[rank])
        snprintf(wrong, bytes, "rank %u had %u processes, and the story has %u", rank,
                 report->lives[rank], play->story.lives[rank]);
    else if (play->left[rank] != (play->story.leaves_after[rank] != 0))
        snprintf(wrong, bytes, "rank %u %s", rank,
                 play->left[rank] ? "left, and nobody asked it to" : "did not leave when asked to");
}

static void judge(const struct play *play, char *wrong, size_t bytes) {
    const struct sc_sim_report *report = &play->report;

    wrong[0] = '\0';
    for (uint32_t r = 0; r < MODEL_RANKS && wrong[0] == '\0'; r++)
        judge_rank(play, r, wrong, bytes);
    if (report->violations != 0)
        snprintf(wrong, bytes, "%u violations, the first: %s", report->violations,
                 report->violation);
    else if (play->script.wrong != 0)
        snprintf(wrong, bytes, "%u wrong tokens, the first: %s", play->script.wrong,
                 play->script.first_wrong);
    else if (wrong[0] != '\0' || play->story.unforeseen)
        return;
    else if (play->epochs_count != 1 + play->story.recoveries)
        snprintf(wrong, bytes, "%u epochs, and the story has %u", play->epochs_count,
                 1 + play->story.recoveries);
    else if (refills(play) != play->story.refills)
        snprintf(wrong, bytes, "caches were %scomputed again", refills(play) ? "" : "not ");
    else if (forgets(play) != play->story.forgets)
        snprintf(wrong, bytes, "the conversation was %s", forgets(play) ? "forgotten" : "known");
}

// ---- what is printed ---------------------------------------------------------------------------

static double seconds(uint64_t ns) {
    return (double)ns / (double)SECOND;
}

static void print_epoch(const struct epoch *epoch, uint32_t number) {
    const struct sc_recovery *record = &epoch->record;
    char cause[160];

    printf("  recovery %u  %s\n", number, sc_cause_text(&record->cause, cause, sizeof cause));
    printf("              abort %.3f s, wait %.3f s, form %.3f s, warm-up %.3f s; ",
           seconds(record->phases.abort_ns), seconds(record->phases.wait_ns),
           seconds(record->phases.form_ns), seconds(record->phases.warmup_ns));
    if (epoch->token_at_ns != 0)
        printf("no new token for %.3f s\n", seconds(epoch->token_at_ns - epoch->silent_since_ns));
    else
        printf("lost before a new token\n");
    if (epoch->first == 0)
        printf("              a cache is gone: all %u positions are computed again\n",
               epoch->count);
    else
        printf("              all caches are there: the step is done again, position %u of %u\n",
               epoch->first + 1, epoch->count);
}

static void print_play(const struct play *play) {
    const struct settings *settings = play->settings;
    const uint32_t told[] = {script_answered(&play->script, 0), script_answered(&play->script, 1)};

    printf("%s, %s, seed %" PRIu64 ": %s\n", settings->story->name,
           settings->captured ? "captured" : "eager", settings->seed, settings->story->about);
    for (uint32_t i = 1; i < play->epochs_count; i++)
        print_epoch(&play->epochs[i], i);
    if (told[0] == settings->answers && told[1] == settings->answers && play->script.wrong == 0)
        printf(
            "  tokens      all %u right on both ranks, each by %u all-reduces that met their own: "
            "no step was mispaired\n",
            settings->answers, MODEL_LAYERS);
    else
        printf("  tokens      %u on rank 0 and %u on rank 1 of %u right, %u wrong\n", told[0],
               told[1], settings->answers, play->script.wrong);
    printf("  time        %.3f s%s, trace %016" PRIx64 "\n", seconds(play->report.ended_ns),
           settings->real ? "" : ", virtual", play->report.hash);
}

static void print_trace(void *arg, const char *line) {
    (void)arg;
    printf("%s\n", line);
}

static void print_wrong(const struct settings *settings, const char *wrong) {
    printf("  WRONG       %s\n", wrong);
    printf("  replay      engine --story %s%s --tokens %u --seed %" PRIu64 " --trace%s\n",
           settings->story->name, settings->captured ? " --captured" : "", settings->answers,
           settings->seed, settings->real ? " --real" : "");
}

// ---- the run -----------------------------------------------------------------------------------

static sc_status run(struct play *play) {
    const struct settings *settings = play->settings;
    struct sc_sim_options options;

    sc_sim_options_init(&options, sizeof options);
    options.clock = settings->real ? SC_SIM_REAL : SC_SIM_VIRTUAL;
    options.seed = settings->seed;
    options.plan = play->story.plan;
    options.plan_name = settings->story->name;
    options.on_trace = settings->trace ? print_trace : NULL;
    play->report.size = sizeof play->report;
    return sc_sim_run(&options, rank_main, play, &play->report);
}

bool play_story(const struct settings *settings, bool in_full, uint32_t *recoveries) {
    struct play *play = calloc(1, sizeof *play);
    char wrong[700];
    bool right = false;

    if (play == NULL || !script_write(&play->script, settings->answers, settings->seed)) {
        printf("no memory\n");
        free(play);
        return false;
    }
    play->settings = settings;
    pthread_mutex_init(&play->lock, NULL);
    story_write(settings->story, settings->captured, settings->seed, settings->answers,
                &play->story);
    if (run(play) != SC_OK) {
        print_wrong(settings, sc_last_error());
    } else {
        judge(play, wrong, sizeof wrong);
        right = wrong[0] == '\0';
        if (in_full || !right)
            print_play(play);
        if (!right)
            print_wrong(settings, wrong);
        *recoveries += play->epochs_count != 0 ? play->epochs_count - 1 : 0;
    }
    while (play->gpus_count > 0)
        gpu_sim_close(play->gpus[--play->gpus_count]);
    pthread_mutex_destroy(&play->lock);
    free(play);
    return right;
}
