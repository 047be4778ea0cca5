/*
 * hosted-server.c - the shim under AddressSanitizer, which cannot be loaded into the test runner: a
 * server that launches one sandbox, runs one program in it and tidies up. Arguments: cprg-init, the
 * plan and the request, as files.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cprg.h"

static unsigned char bytes[CPRG_REQUEST_MAX * 32u];

static int require(const char *what, long result) {
    if (result < 0) {
        (void)fprintf(stderr, "%s: %ld\n", what, result);
        exit(1);
    }
    return (int)result;
}

static uint32_t read_file(const char *path) {
    int fd = require(path, open(path, O_RDONLY | O_CLOEXEC));
    long length = 0;
    long count;
    while ((count = require(path, read(fd, bytes + length, sizeof bytes - (size_t)length))) > 0) {
        length += count;
    }
    (void)close(fd);
    return (uint32_t)length;
}

static void wait_readable(int fd) {
    struct pollfd readable = {fd, POLLIN, 0};
    (void)require("poll", poll(&readable, 1, 20000) == 1 ? 0 : -1);
}

static struct cprg_report next_report(int fd) {
    struct cprg_report report;
    wait_readable(fd);
    (void)require("report", cprg_read(fd, &report, sizeof report) == sizeof report ? 0 : -1);
    return report;
}

static void expect_report(int fd, enum cprg_report_type type) {
    struct cprg_report report = next_report(fd);
    if (report.type != (uint32_t)type || report.err != 0) {
        (void)fprintf(stderr, "report %u, not %u: step %d index %d errno %d\n", report.type,
                      (unsigned)type, report.step, report.index, report.err);
        exit(1);
    }
}

/* A launch that fails: the clone is undone. */
static void launch_refused(struct cprg_launch launch) {
    struct cprg_launched launched;
    struct cprg_error error;
    launch.cgroup_count = CPRG_CGROUPS_MAX + 1;
    (void)require("beyond a bound", cprg_launch(&launch, &launched, &error) < 0 ? 0 : -1);
    launch.cgroup_count = 0;
    launch.cgroup_dir_fd = launch.report_fd; /* no directory */
    (void)require("no cgroup", cprg_launch(&launch, &launched, &error) < 0 ? 0 : -1);
}

static void run_program(int control, int report, const char *request) {
    int32_t null = require("null", open("/dev/null", O_RDWR | O_CLOEXEC));
    const int32_t fds[2] = {null, null};
    uint32_t length = read_file(request);
    (void)require("request", cprg_send(control, bytes, length, fds, 2));
    (void)close(null);
    expect_report(report, CPRG_REPORT_STARTED);
    expect_report(report, CPRG_REPORT_EXITED);
}

static void look_at_workspace(int control) {
    int32_t workspace[CPRG_REQUEST_FDS_MAX];
    uint32_t count = 0;
    struct cprg_statfs statfs;
    (void)require("workspace", cprg_receive(control, bytes, 16, workspace, 12, &count));
    (void)require("one descriptor", count == 1 ? 0 : -1);
    (void)require("statfs", cprg_statfs(workspace[0], &statfs));
    (void)require("beneath", cprg_open_beneath(workspace[0], "../etc", O_RDONLY, 0) < 0 ? 0 : -1);
    (void)close(workspace[0]);
}

int main(int argc, char **argv) {
    struct cprg_launch launch = {.size = sizeof launch,
                                 .map = CPRG_MAP_PARENT,
                                 .cgroup_dir_fd = -1,
                                 .uid_init = 700001,
                                 .gid_init = 700001,
                                 .uid_program = 700002,
                                 .gid_program = 700002,
                                 .id_inside = 1000};
    struct cprg_launched launched;
    struct cprg_error error;
    struct cprg_wait ended;
    int32_t control[2];
    int32_t report[2];
    (void)require("arguments", argc == 4 ? 0 : -1);
    (void)require("socketpair", cprg_socketpair(control));
    (void)require("pipe", cprg_pipe(report, 1));
    uint32_t length = read_file(argv[1]);
    launch.init_fd = require("memfd", cprg_memfd("cprg-init", bytes, length));
    launch.control_fd = control[1];
    launch.report_fd = report[1];
    launch_refused(launch);

    length = read_file(argv[2]);
    (void)require("plan", cprg_send(control[0], bytes, length, NULL, 0));
    (void)require("launch", cprg_launch(&launch, &launched, &error));
    (void)close(control[1]);
    (void)close(report[1]);
    expect_report(report[0], CPRG_REPORT_READY);
    (void)require("launch_end", cprg_launch_end(launched.arena));
    look_at_workspace(control[0]);
    run_program(control[0], report[0], argv[3]);

    (void)close(control[0]);
    wait_readable(launched.pidfd);
    (void)require("reap", cprg_reap(launched.pidfd, &ended));
    (void)require("gone", cprg_signal(launched.pidfd, 9) < 0 ? 0 : -1);
    (void)printf("ended with %d\n", ended.code);
    return 0;
}
