/*
 * floor.c - what the machine can do at best: vfork, execve, wait, and nothing else. One sample for
 * each byte on standard input, its nanoseconds on standard output, so that samples of ours can be
 * taken in turn with it.
 *
 *     floor run PROGRAM [ARG...]      from before vfork to after wait4
 *     floor kill MS PROGRAM [ARG...]  from the deadline of a timerfd to the death by SIGKILL
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *const child_env[] = {"PATH=/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8", NULL};

static void fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        fail("clock_gettime");
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static pid_t start(char *const argv[], int null_fd) {
    pid_t pid = vfork();
    if (pid < 0)
        fail("vfork");
    if (pid == 0) {
        dup2(null_fd, 0);
        dup2(null_fd, 1);
        dup2(null_fd, 2);
        execve(argv[0], argv, child_env);
        _exit(127);
    }
    return pid;
}

static int wait_for(pid_t pid) {
    int status = 0;
    while (wait4(pid, &status, 0, NULL) < 0)
        if (errno != EINTR)
            fail("wait4");
    return status;
}

static int64_t sample_run(char *const argv[], int null_fd) {
    int64_t begin = now_ns();
    int status = wait_for(start(argv, null_fd));
    int64_t end = now_ns();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "floor: %s ended with status %d\n", argv[0], status);
        exit(1);
    }
    return end - begin;
}

static int64_t sample_kill(int64_t timeout_ms, char *const argv[], int null_fd) {
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer < 0)
        fail("timerfd_create");
    int64_t deadline = now_ns() + timeout_ms * 1000000;
    struct itimerspec when = {0};
    when.it_value.tv_sec = (time_t)(deadline / 1000000000);
    when.it_value.tv_nsec = (long)(deadline % 1000000000);
    pid_t pid = start(argv, null_fd);
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        fail("timerfd_settime");
    uint64_t expirations;
    if (read(timer, &expirations, sizeof(expirations)) != sizeof(expirations))
        fail("read timerfd");
    kill(pid, SIGKILL);
    wait_for(pid);
    int64_t end = now_ns();
    close(timer);
    return end - deadline;
}

int main(int argc, char **argv) {
    int is_kill = argc > 3 && strcmp(argv[1], "kill") == 0;
    int is_run = argc > 2 && strcmp(argv[1], "run") == 0;
    if (!is_kill && !is_run) {
        fprintf(stderr, "usage: floor run PROGRAM [ARG...] | floor kill MS PROGRAM [ARG...]\n");
        return 2;
    }
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        fail("open /dev/null");
    int64_t timeout_ms = is_kill ? strtoll(argv[2], NULL, 10) : 0;
    char byte;
    while (read(0, &byte, 1) == 1) {
        int64_t ns =
            is_kill ? sample_kill(timeout_ms, argv + 3, null_fd) : sample_run(argv + 2, null_fd);
        printf("%lld\n", (long long)ns);
        fflush(stdout);
    }
    return 0;
}
