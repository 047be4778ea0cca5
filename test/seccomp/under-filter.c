/*
 * under-filter.c - runs a program under a filter: under-filter FILTER PROGRAM [ARGUMENT...]
 * FILTER is a file of struct sock_filter.
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static struct sock_filter code[BPF_MAXINSNS];
    if (argc < 3) {
        return 2;
    }
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) {
        perror(argv[1]);
        return 125;
    }
    size_t count = fread(code, sizeof code[0], BPF_MAXINSNS, file);
    fclose(file);
    struct sock_fprog filter = {.len = (unsigned short)count, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) {
        perror("seccomp");
        return 125;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 126;
}
