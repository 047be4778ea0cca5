#!/bin/sh
# Builds both machines into a temporary directory and verifies what the files are. `make check`.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM
failed=0

fail() {
    echo "check: $*" >&2
    failed=1
}

# verify FILE MACHINE: no library, no interpreter, no executable stack, nothing writable and
# executable, nothing undefined.
verify() {
    headers=$(readelf -lW "$1")
    readelf -hW "$1" | grep -q "Machine:.*$2" || fail "$1 is not for $2"
    readelf -dW "$1" 2>/dev/null | grep -q NEEDED && fail "$1 needs a library"
    readelf -dW "$1" 2>/dev/null | grep -q TEXTREL && fail "$1 has text relocations"
    echo "$headers" | grep -q INTERP && fail "$1 has an interpreter"
    echo "$headers" | grep -q 'GNU_STACK.* RW ' || fail "$1 may have an executable stack"
    echo "$headers" | grep -q 'LOAD.* RWE ' && fail "$1 has memory both writable and executable"
    readelf --dyn-syms -W "$1" 2>/dev/null | awk '$7 == "UND" && $8 != ""' | grep . &&
        fail "$1 has undefined symbols"
    echo "check: $1: $(wc -c <"$1") bytes"
}

# The numbers of sys-numbers.h against the headers that this machine has.
verify_numbers() {
    cat >"$out/numbers.c" <<END
$1
#include "sys-numbers.h"
#define COMPARE(name, x86_64, aarch64) _Static_assert(__NR_##name == $2, #name);
SYS_NUMBERS(COMPARE)
END
    cc -I. -I"$out" -fsyntax-only "$out/numbers.c" || fail "sys-numbers.h differs: $2"
}

for arch in x86_64 aarch64; do
    make --no-print-directory OUT="$out/$arch" ARCH="$arch" >"$out/log" 2>&1 || {
        cat "$out/log" >&2
        fail "cannot build for $arch"
        continue
    }
    machine=X86-64
    [ "$arch" = x86_64 ] || machine=AArch64
    for file in libcprg.so cprg-init; do
        (cd "$out" && verify "$arch/$file" "$machine") || failed=1
    done
done

case "$(uname -m)" in
x86_64) verify_numbers '#include <asm/unistd.h>' x86_64 ;;
aarch64) verify_numbers '#include <asm/unistd.h>' aarch64 ;;
esac
if [ "$(uname -m)" = x86_64 ] && [ -e /usr/include/asm-generic/unistd.h ]; then
    # The generic table under names of its own, beside the machine's.
    mkdir -p "$out/asm"
    echo '#define __BITS_PER_LONG 64' >"$out/asm/bitsperlong.h"
    verify_numbers '#define __ARCH_WANT_RENAMEAT
#define __ARCH_WANT_SET_GET_RLIMIT
#define __ARCH_WANT_SYS_CLONE3
#define __ARCH_WANT_MEMFD_SECRET
#include <asm-generic/unistd.h>' aarch64
fi
[ "$failed" = 0 ] && echo "check: both machines build as they should"
exit "$failed"
