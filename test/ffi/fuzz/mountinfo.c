/*
 * mountinfo.c - fuzzes the reading of /proc/self/mountinfo: the rest of the input is that file.
 * What is remounted lies below the target, always.
 */
#include "kernel.h"
#include "mount.h"
#include "sys.h"

const struct fake_hooks fake_hooks = {0};

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < FAKE_HEADER) {
        return -1;
    }
    fake_start(input, size);
    fake.top = (fake.header[FAKE_TARGET] & 1) != 0 ? "/s cratch/usr" : "/scratch";
    int result = mount_legacy_bind(5, 6, fake.header[FAKE_TARGET] & K_MS_NOEXEC);
    FAKE_CHECK(result <= 0 && fake_open_count() == 0);
    return 0;
}
