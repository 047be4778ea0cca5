/* sys-clone.h - clone with shared memory, and the way out of it: what needs assembly of its own. */
#ifndef CPRG_SYS_CLONE_H
#define CPRG_SYS_CLONE_H

#include "sys.h"

/* Runs in the new process, on its own stack; must not return. */
typedef void (*sys_clone_entry)(void *argument);

/*
 * clone(2) or clone3(2) with CLONE_VM and a stack. The call returns twice: here in the caller, and
 * on the other stack, where nothing but the two registers that the kernel preserves may be used.
 */
#if defined(CPRG_FAKE_KERNEL)
long sys_clone_call(enum sys_number number, const long arguments[5], sys_clone_entry entry,
                    void *argument);
#elif defined(__x86_64__)
static inline long sys_clone_call(enum sys_number number, const long arguments[5],
                                  sys_clone_entry entry, void *argument) {
    register long r10 __asm__("r10") = arguments[3];
    register long r8 __asm__("r8") = arguments[4];
    register sys_clone_entry function __asm__("r12") = entry;
    register void *given __asm__("r13") = argument;
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %%r13, %%rdi\n\t"
                     "call *%%r12\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(result)
                     : "a"((long)number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]),
                       "r"(r10), "r"(r8), "r"(function), "r"(given)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

/* write(2), again while it is interrupted, then exit_group(2) without touching the stack: whoever
   reads the bytes may free the memory that this process runs on. */
_Noreturn static inline void sys_write_and_exit(int fd, const void *bytes, size_t count, int code) {
    register long status __asm__("r12") = code;
    __asm__ volatile("1: mov %[write], %%eax\n\t"
                     "syscall\n\t"
                     "cmp $-4, %%rax\n\t" /* EINTR */
                     "je 1b\n\t"
                     "mov %%r12, %%rdi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n\t"
                     "hlt"
                     :
                     : [write] "i"(NR_write), [exit] "i"(NR_exit_group), "D"((long)fd), "S"(bytes),
                       "d"(count), "r"(status)
                     : "rax", "rcx", "r11", "memory", "cc");
    __builtin_unreachable();
}
#else
static inline long sys_clone_call(enum sys_number number, const long arguments[5],
                                  sys_clone_entry entry, void *argument) {
    register long x8 __asm__("x8") = (long)number;
    register long x0 __asm__("x0") = arguments[0];
    register long x1 __asm__("x1") = arguments[1];
    register long x2 __asm__("x2") = arguments[2];
    register long x3 __asm__("x3") = arguments[3];
    register long x4 __asm__("x4") = arguments[4];
    register sys_clone_entry function __asm__("x19") = entry;
    register void *given __asm__("x20") = argument;
    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t"
                     "mov x30, xzr\n\t"
                     "mov x0, x20\n\t"
                     "blr x19\n\t"
                     "brk #1\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(function), "r"(given)
                     : "memory", "cc");
    return x0;
}

_Noreturn static inline void sys_write_and_exit(int fd, const void *bytes, size_t count, int code) {
    register long x0 __asm__("x0") = fd;
    register const void *x1 __asm__("x1") = bytes;
    register size_t x2 __asm__("x2") = count;
    register long again __asm__("x19") = fd;
    register long status __asm__("x20") = code;
    __asm__ volatile("1: mov x0, x19\n\t"
                     "mov x8, %[write]\n\t"
                     "svc #0\n\t"
                     "cmn x0, #4\n\t" /* EINTR */
                     "b.eq 1b\n\t"
                     "mov x0, x20\n\t"
                     "mov x8, %[exit]\n\t"
                     "svc #0\n\t"
                     "brk #1"
                     : "+r"(x0)
                     : [write] "i"(NR_write), [exit] "i"(NR_exit_group), "r"(x1), "r"(x2),
                       "r"(again), "r"(status)
                     : "x8", "memory", "cc");
    __builtin_unreachable();
}
#endif

#endif
