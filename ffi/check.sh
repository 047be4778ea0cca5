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

# Constants and structures of sys-types.h, in the same way. The other machine's differences from
# the generic headers, which are all that this one has of it, are written out below.
verify_types() {
    "$@" -std=gnu11 -ffreestanding -fsyntax-only -nostdinc -isystem "$("$1" -print-file-name=include)" \
        -isystem "$out/include" -isystem /usr/include -isystem "/usr/include/$(uname -m)-linux-gnu" \
        -I. ../test/ffi/uapi.c || fail "sys-types.h differs: $*"
}

generic_headers() {
    mkdir -p "$out/include/asm"
    for header in /usr/include/asm-generic/*.h; do
        echo "#include <asm-generic/${header##*/}>" >"$out/include/asm/${header##*/}"
    done
    echo '#define __BITS_PER_LONG 64' >"$out/include/asm/bitsperlong.h"
    echo '#include <linux/byteorder/little_endian.h>' >"$out/include/asm/byteorder.h"
    cat >"$out/include/asm/signal.h" <<END
#define SA_RESTORER 0x04000000
#include <asm-generic/signal.h>
END
    cat >"$out/include/asm/fcntl.h" <<END
#define O_DIRECTORY 040000
#define O_NOFOLLOW 0100000
#define O_DIRECT 0200000
#define O_LARGEFILE 0400000
#include <asm-generic/fcntl.h>
END
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
if [ -e /usr/include/linux/openat2.h ]; then
    verify_types cc
    clang=$(command -v clang-14 || command -v clang || true)
    if [ "$(uname -m)" = x86_64 ] && [ -n "$clang" ] && [ -e /usr/include/asm-generic/unistd.h ]; then
        generic_headers
        verify_types "$clang" --target=aarch64-linux-gnu
    fi
fi
[ "$failed" = 0 ] && echo "check: both machines build as they should"
exit "$failed"
