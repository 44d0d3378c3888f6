// SPDX-License-Identifier: AGPL-3.0-only
//
// One rank, as an engine would be one: steps for as long as the epoch lives, and after a loss the wait
// for the next. What happens is told as it happens.
#include "cli/gpu/steps.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/run.h"
#include "core/op.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND UINT64_C(1000000000)
#define WAIT_TOLD_NS (5 * SECOND) // how often a wait is told
#define CLOSE_NS (15 * SECOND)

struct rank {
    const struct sc_run_request *request;
    uint64_t begun_ns;
    struct sc_gpu *gpu;
    sc_comm comm;
    struct sc_steps steps;
    uint64_t decoded, recoveries;
    uint64_t told_ns, told_decoded; // of the last line
    uint64_t lost_ns;               // 0: no epoch was lost that is not replaced
    const char *failed;             // why the rank cannot go on
};

// What the signal handler needs.
static volatile sig_atomic_t stop;
static volatile sc_comm stop_comm;

static void on_signal(int number) {
    stop = number;
    sc_interrupt(stop_comm);
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

// ---- telling ------------------------------------------------------------------------------------

// One printf a line: the notifier's thread tells, too.
__attribute__((format(printf, 2, 3))) static void tell(const struct rank *r, const char *format,
                                                       ...) {
    char line[640];
    uint64_t ns = sc_report_now_ns() - r->begun_ns;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    printf("%6" PRIu64 ".%03" PRIu64 " s  %s\n", ns / SECOND, ns % SECOND / 1000000, line);
}

static void on_note(void *arg, const struct sc_note *note) {
    tell(arg, "%s", note->text);
}

static void tell_head(const struct rank *r) {
    const struct sc_run_request *request = r->request;
    uint32_t driver = sc_gpu_driver(r->gpu), nccl = sc_gpu_nccl(r->gpu);

    printf("rank    %" PRIu64 " of %" PRIu64 " on GPU %" PRIu64 ", %s; CUDA %u.%u, NCCL %u.%u.%u\n",
           request->rank, request->world, request->device, sc_gpu_name(r->gpu), driver / 1000,
           driver % 1000 / 10, nccl / 10000, nccl / 100 % 100, nccl % 100);
    printf("model   %s: %" PRIu64 " all-reduces of %" PRIu64 " bytes a token%s%s\n",
           request->model.name, request->model.moe_layers,
           request->model.hidden_size * SC_BF16_BYTES, request->graph ? ", as one graph" : "",
           request->verify ? ", all verified" : "");
}

static void tell_recovery(const struct rank *r, const struct sc_recovery *recovery) {
    const struct sc_phases *p = &recovery->phases;
    const uint64_t ns[] = {p->detect_ns, p->agree_ns, p->abort_ns,
                           p->wait_ns,   p->form_ns,  p->warmup_ns};
    static const char *const names[] = {"detect", "agree", "abort", "wait", "form", "warm-up"};
    char time[SC_REPORT_TIME_BYTES], cause[256], line[256];
    size_t used = 0;

    if (recovery->cause.code == SC_OK) {
        tell(r, "epoch %" PRIu64 ": all %u ranks are there", recovery->epoch >> 24,
             recovery->world);
        return;
    }
    tell(r, "epoch %" PRIu64 ": recovered from: %s", recovery->epoch >> 24,
         sc_cause_text(&recovery->cause, cause, sizeof cause));
    for (size_t i = 0; i < sizeof ns / sizeof ns[0] && used < sizeof line; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s %s", i == 0 ? "" : ", ",
                                 names[i], sc_report_time(ns[i], time));
    tell(r, "epoch %" PRIu64 ": %s; on from token %" PRIu64, recovery->epoch >> 24, line,
         r->steps.mark + 1);
}

static void tell_rate(struct rank *r) {
    uint64_t now = sc_report_now_ns();
    if (now - r->told_ns < SECOND)
        return;
    double seconds = (double)(now - r->told_ns) / 1e9;
    tell(r, "token %" PRIu64 ", %.1f tokens/s%s", r->steps.mark,
         (double)(r->decoded - r->told_decoded) / seconds,
         r->steps.wrong != 0 ? ", with wrong results" : "");
    r->told_ns = now;
    r->told_decoded = r->decoded;
}

static void tell_end(const struct rank *r) {
    const struct sc_steps *steps = &r->steps;
    char time[SC_REPORT_TIME_BYTES];

    printf("%" PRIu64 " tokens decoded in %s, the last was token %" PRIu64 "; recoveries: %" PRIu64
           "\n",
           r->decoded, sc_report_time(sc_report_now_ns() - r->begun_ns, time), steps->mark,
           r->recoveries);
    if (r->request->verify)
        printf("%" PRIu64 " sums verified, %" PRIu64 " wrong\n", steps->verified, steps->wrong);
}

// ---- living -------------------------------------------------------------------------------------

static bool is_done(const struct rank *r) {
    return r->request->tokens != 0 && r->steps.mark >= r->request->tokens;
}

// Until the next epoch, a signal, or the end.
static sc_status await_epoch(struct rank *r) {
    struct sc_recovery recovery = {.size = sizeof recovery};
    sc_status status;

    do {
        status = sc_wait_ready(r->comm, WAIT_TOLD_NS, &recovery);
        if (status == SC_TIMEOUT || status == SC_JOIN_TIMEOUT)
            tell(r, "%s", sc_last_error());
    } while (stop == 0 && (status == SC_TIMEOUT || status == SC_JOIN_TIMEOUT));
    if (stop != 0)
        return SC_INTERRUPTED;
    if (status != SC_OK) {
        r->failed = sc_last_error();
        return status;
    }
    status = sc_steps_enter(&r->steps, &recovery);
    r->recoveries += recovery.cause.code != SC_OK;
    tell_recovery(r, &recovery);
    if (r->lost_ns == 0)
        r->told_ns = sc_report_now_ns();
    return status;
}

// After it, all ranks have the last token: nobody who leaves is missed.
static sc_status finish(struct rank *r) {
    return sc_barrier(r->comm, r->steps.epoch, SC_FOREVER);
}

static sc_status decode(struct rank *r) {
    sc_status status = SC_OK;

    while (status == SC_OK && stop == 0 && !is_done(r)) {
        status = sc_steps_one(&r->steps);
        if (status != SC_OK)
            break;
        r->decoded++;
        if (r->lost_ns != 0) {
            char time[SC_REPORT_TIME_BYTES];
            tell(r, "token %" PRIu64 " is the first since the loss, %s after it", r->steps.mark,
                 sc_report_time(sc_report_now_ns() - r->lost_ns, time));
            r->lost_ns = 0;
        }
        tell_rate(r);
    }
    return status == SC_OK && is_done(r) ? finish(r) : status;
}

// Epoch after epoch. False when the rank cannot go on.
static bool live(struct rank *r) {
    for (;;) {
        sc_status status = await_epoch(r);
        if (status == SC_OK)
            status = decode(r);
        else if (r->failed != NULL)
            return false;
        if (stop != 0 || (status == SC_OK && is_done(r)))
            return true;
        if (sc_status_class(status) == SC_CLASS_CALLER) {
            r->failed = r->steps.why;
            return false;
        }
        tell(r, "after token %" PRIu64 ": %s", r->steps.mark, r->steps.why);
        r->lost_ns = sc_report_now_ns();
        sc_steps_leave(&r->steps);
    }
}

static sc_status leave(struct rank *r) {
    bool returns = stop != 0 && !r->request->final;
    sc_status status;

    do {
        status = sc_close(r->comm, returns ? SC_CLOSE_RETURNING : SC_CLOSE_FINAL, CLOSE_NS);
    } while (status == SC_INTERRUPTED);
    if (status != SC_OK)
        tell(r, "close: %s", sc_last_error());
    else if (r->failed == NULL)
        tell(r, returns ? "left; the others wait for its return" : "left for good");
    return status;
}

// ---- opening ------------------------------------------------------------------------------------

static bool open_rank(struct rank *r) {
    const struct sc_run_request *request = r->request;
    struct sc_config config;
    char why[512];

    if (sc_gpu_open((int32_t)request->device, &r->gpu, why, sizeof why) != SC_OK) {
        fprintf(stderr, "spark-comm: run: %s\n", why);
        return false;
    }
    sc_config_init(&config, sizeof config);
    config.rank = (uint32_t)request->rank;
    config.world = (uint32_t)request->world;
    config.master_host = request->host;
    config.master_port = request->port;
    config.device = (int32_t)request->device;
    config.capacity_bytes = request->model.hidden_size * SC_BF16_BYTES;
    config.key_file = request->key_file;
    config.on_note = on_note;
    config.arg = r;
    // A graph of a step needs so many places at a time.
    if (request->graph && request->model.moe_layers > config.ledger_ops)
        config.ledger_ops = (uint32_t)request->model.moe_layers;
    if (sc_open(&config, &r->comm) != SC_OK) {
        fprintf(stderr, "spark-comm: run: %s\n", sc_last_error());
        sc_gpu_close(r->gpu);
        return false;
    }
    tell_head(r);
    return true;
}

int sc_run_play(const struct sc_run_request *request) {
    struct rank r = {.request = request, .begun_ns = sc_report_now_ns()};
    const struct sc_steps_spec spec = {
        .rank = (uint32_t)request->rank,
        .world = (uint32_t)request->world,
        .layers = request->model.moe_layers,
        .hidden_size = request->model.hidden_size,
        .verify = request->verify,
        .graph = request->graph,
    };

    (void)setvbuf(stdout, NULL, _IOLBF, 0); // whoever reads along sees each line at once
    if (!open_rank(&r))
        return SC_EXIT_USAGE;
    stop_comm = r.comm;
    catch_signals();
    bool lived = sc_steps_open(&r.steps, &spec, r.comm, r.gpu) == SC_OK;
    if (lived)
        lived = live(&r);
    else
        r.failed = r.steps.why;
    if (!lived)
        fprintf(stderr, "spark-comm: run: rank %" PRIu64 " cannot go on: %s\n", request->rank,
                r.failed);
    sc_steps_close(&r.steps);
    sc_status closed = leave(&r);
    if (lived)
        tell_end(&r);
    if (closed == SC_OK)
        sc_gpu_close(r.gpu);
    bool well = lived && closed == SC_OK && r.steps.wrong == 0;
    return sc_report_end(well ? EXIT_SUCCESS : EXIT_FAILURE);
}
