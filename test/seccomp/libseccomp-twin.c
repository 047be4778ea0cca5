/*
 * libseccomp-twin.c - builds a filter with libseccomp and writes it as BPF to stdout, to be
 * compared with ours. Usage: libseccomp-twin x86_64|aarch64 < rules
 *
 * A line is `NAME ACTION` or `NAME ACTION ARG MASK VALUE`: the call gets the action (SECCOMP_RET_*)
 * always, or where (argument & MASK) == VALUE. Numbers are hexadecimal, ARG decimal. All other
 * calls get ENOSYS; another machine's calls kill. A name that libseccomp does not know is written
 * to stderr and left out.
 */
#include <errno.h>
#include <inttypes.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what, const char *name, int result) {
    fprintf(stderr, "failed: %s %s: %s\n", what, name, strerror(-result));
    return 1;
}

int main(int argc, char **argv) {
    char line[256];
    if (argc != 2) {
        return 2;
    }
    uint32_t arch = strcmp(argv[1], "aarch64") == 0 ? SCMP_ARCH_AARCH64 : SCMP_ARCH_X86_64;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (filter == NULL) {
        return fail("init", argv[1], -ENOMEM);
    }
    int result = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (result == 0) {
        /* A search tree, or a run over hundreds of comparisons for each of millions of calls. */
        result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    }
    if (result == 0 && arch != seccomp_arch_native()) {
        result = seccomp_arch_add(filter, arch);
        if (result == 0) {
            result = seccomp_arch_remove(filter, SCMP_ARCH_NATIVE);
        }
    }
    if (result != 0) {
        return fail("set up", argv[1], result);
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        char name[64];
        uint32_t action, arg, mask, value;
        int fields = sscanf(line, "%63s %" SCNx32 " %" SCNu32 " %" SCNx32 " %" SCNx32, name,
                            &action, &arg, &mask, &value);
        int number = seccomp_syscall_resolve_name(name);
        if (number == __NR_SCMP_ERROR) {
            fprintf(stderr, "unknown: %s\n", name);
            continue;
        }
        if (fields == 2) {
            result = seccomp_rule_add(filter, action, number, 0);
        } else if (fields == 5) {
            struct scmp_arg_cmp compare = SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, value);
            result = seccomp_rule_add_array(filter, action, number, 1, &compare);
        } else {
            return fail("read", line, -EINVAL);
        }
        if (result != 0) {
            return fail("add", line, result);
        }
    }
    result = seccomp_export_bpf(filter, STDOUT_FILENO);
    seccomp_release(filter);
    return result == 0 ? 0 : fail("export", argv[1], result);
}
