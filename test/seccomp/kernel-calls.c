/*
 * kernel-calls.c - makes system calls under a filter and says what the kernel did with each.
 *
 *   kernel-calls answers FILTER < calls   all of them in one process; nothing may run: the filter
 *                                         answers every call with an errno
 *   kernel-calls one-by-one FILTER|- < calls   each in a process of its own; `-`: no filter
 *   kernel-calls entry32 FILTER|-         getpid through the 32-bit door
 *   kernel-calls notified FILTER < calls  each in a process of its own whose filter has a listener:
 *                                         the first notification is read, the process is killed
 *
 * FILTER is a file of struct sock_filter. A call is seven 64-bit words: number and arguments. For
 * each an outcome goes to stdout: three 64-bit words, how it ended (enum ending) and two values.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS_MAX = 1 << 20 };
/* Bound of a call that blocks, and of a wait for a notification. */
enum { CALL_SECONDS = 20 };

enum ending {
    RETURNED = 1,  /* the value, or -errno */
    SIGNALLED = 2, /* the signal */
    NOTIFIED = 3,  /* number, seccomp_data.arch */
};

struct call {
    int64_t number;
    uint64_t args[6];
};

struct outcome {
    int64_t ending;
    int64_t value;
    int64_t detail;
};

static _Noreturn void die(const char *what) {
    perror(what);
    exit(1);
}

static struct sock_fprog read_filter(const char *path) {
    static struct sock_filter code[BPF_MAXINSNS];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        die(path);
    }
    size_t count = fread(code, sizeof code[0], BPF_MAXINSNS, file);
    fclose(file);
    return (struct sock_fprog){.len = (unsigned short)count, .filter = code};
}

/* Returns a listener when flags ask for one. */
static int install(const struct sock_fprog *filter, unsigned flags) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        die("no_new_privs");
    }
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, filter);
    if (result < 0) {
        die("seccomp");
    }
    return (int)result;
}

static int64_t make(const struct call *call) {
    long result = syscall(call->number, call->args[0], call->args[1], call->args[2], call->args[3],
                          call->args[4], call->args[5]);
    return result == -1 ? -errno : result;
}

static void *map_shared(size_t size) {
    void *memory =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        die("mmap");
    }
    return memory;
}

/* How a child that ends in a trap (as these all do, since exit may be refused) ended. */
static void settle(pid_t child, struct outcome *outcome) {
    int status;
    if (waitpid(child, &status, 0) != child) {
        die("waitpid");
    }
    if (WIFSIGNALED(status) && outcome->ending == 0) {
        *outcome = (struct outcome){.ending = SIGNALLED, .value = WTERMSIG(status)};
    } else if (WIFEXITED(status)) {
        fprintf(stderr, "a child exited with %d\n", WEXITSTATUS(status));
        exit(1);
    }
}

static void answers(const struct sock_fprog *filter, const struct call *calls, size_t count,
                    struct outcome *outcomes) {
    pid_t child = fork();
    if (child == 0) {
        (void)install(filter, 0);
        for (size_t i = 0; i < count; i++) {
            outcomes[i].value = make(&calls[i]);
            outcomes[i].ending = RETURNED;
        }
        __builtin_trap();
    }
    settle(child, &outcomes[count]);
}

static void one_by_one(const struct sock_fprog *filter, const struct call *calls, size_t count,
                       struct outcome *outcomes) {
    for (size_t i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            struct itimerval bound = {.it_value = {.tv_sec = CALL_SECONDS}};
            (void)setpgid(0, 0);
            (void)setitimer(ITIMER_REAL, &bound, NULL);
            if (filter != NULL) {
                (void)install(filter, 0);
            }
            outcomes[i].value = make(&calls[i]);
            outcomes[i].ending = RETURNED;
            __builtin_trap();
        }
        settle(child, &outcomes[i]);
    }
}

static void entry32(const struct sock_fprog *filter, struct outcome *outcome) {
    pid_t child = fork();
    if (child == 0) {
        if (filter != NULL) {
            (void)install(filter, 0);
        }
#ifdef __x86_64__
        long result;
        __asm__ volatile("int $0x80"
                         : "=a"(result)
                         : "a"(20L)
                         : "memory", "r8", "r9", "r10", "r11");
        outcome->value = result;
        outcome->ending = RETURNED;
#endif
        __builtin_trap();
    }
    settle(child, outcome);
}

static void send_descriptor(int socket, int descriptor) {
    char byte = 0, control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, 0) != 1) {
        __builtin_trap();
    }
}

static int receive_descriptor(int socket) {
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec bytes = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    int descriptor;
    if (recvmsg(socket, &message, 0) != 1 || CMSG_FIRSTHDR(&message) == NULL) {
        die("recvmsg");
    }
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

/* The listener's side: one notification or the end of the last process under the filter. */
static void listen_once(int listener, struct outcome *outcome) {
    struct seccomp_notif_sizes sizes;
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0 ||
        poll(&wait, 1, CALL_SECONDS * 1000) != 1) {
        die("listener");
    }
    if ((wait.revents & POLLIN) == 0) {
        return;
    }
    size_t size = sizes.seccomp_notif;
    if (size < sizeof(struct seccomp_notif)) {
        size = sizeof(struct seccomp_notif);
    }
    struct seccomp_notif *notice = calloc(1, size); /* must be zero */
    if (notice == NULL || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, notice) != 0 ||
        ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice->id) != 0) {
        die("notification");
    }
    *outcome = (struct outcome){NOTIFIED, notice->data.nr, notice->data.arch};
    free(notice);
}

static void notified(const struct sock_fprog *filter, const struct call *calls, size_t count,
                     struct outcome *outcomes) {
    for (size_t i = 0; i < count; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
            die("socketpair");
        }
        pid_t child = fork();
        if (child == 0) {
            int listener = install(filter, SECCOMP_FILTER_FLAG_NEW_LISTENER);
            send_descriptor(pair[1], listener);
            (void)close(listener);
            outcomes[i].value = make(&calls[i]);
            outcomes[i].ending = RETURNED;
            __builtin_trap();
        }
        (void)close(pair[1]);
        int listener = receive_descriptor(pair[0]);
        listen_once(listener, &outcomes[i]);
        (void)kill(child, SIGKILL);
        settle(child, &outcomes[i]);
        (void)close(listener);
        (void)close(pair[0]);
    }
}

int main(int argc, char **argv) {
    static struct call calls[CALLS_MAX];
    struct sock_fprog filter = {0};
    if (argc != 3) {
        return 2;
    }
    /* Children end in signals; none of them leaves a core. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
        die("dumpable");
    }
    const struct sock_fprog *used = strcmp(argv[2], "-") == 0 ? NULL : &filter;
    if (used != NULL) {
        filter = read_filter(argv[2]);
    }
    size_t count =
        strcmp(argv[1], "entry32") == 0 ? 1 : fread(calls, sizeof calls[0], CALLS_MAX, stdin);
    struct outcome *outcomes = map_shared((count + 1) * sizeof *outcomes);
    if (strcmp(argv[1], "answers") == 0 && used != NULL) {
        answers(used, calls, count, outcomes);
    } else if (strcmp(argv[1], "one-by-one") == 0) {
        one_by_one(used, calls, count, outcomes);
    } else if (strcmp(argv[1], "entry32") == 0) {
        entry32(used, outcomes);
    } else if (strcmp(argv[1], "notified") == 0 && used != NULL) {
        notified(used, calls, count, outcomes);
    } else {
        return 2;
    }
    return fwrite(outcomes, sizeof *outcomes, count, stdout) == count ? 0 : 1;
}
