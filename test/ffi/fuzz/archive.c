/*
 * archive.c - fuzzes UNPACK: the rest of the input is the stream. Whatever it says, no call names
 * anything outside the destination, and a failure that the kernel has no part in leaves no stage.
 */
#include <stdlib.h>
#include <string.h>

/* NOLINTNEXTLINE(bugprone-suspicious-include): its list is emptied after each run */
#include "archive-modes.c"
#include "kernel.h"
#include "transfer.h"

const struct fake_hooks fake_hooks = {0};

/* Bits of FAKE_TARGET; bit 0 says that the destination exists (files.c). */
#define ARCHIVE_MERGE 2u
#define ARCHIVE_DEEP  4u

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < FAKE_HEADER) {
        return -1;
    }
    fake_start(input, size);
    fake.single_names = true;
    bool merge = (fake.header[FAKE_TARGET] & ARCHIVE_MERGE) != 0;
    const char *path = (fake.header[FAKE_TARGET] & ARCHIVE_DEEP) != 0 ? "/a/b/c" : "/w";
    struct transfer_result result = archive_unpack(path, 7, merge);

    bool failed = result.failure.err != 0;
    FAKE_CHECK(result.entries <= fake.text_size / sizeof(struct cprg_entry));
    FAKE_CHECK(result.bytes <= fake.text_size);
    FAKE_CHECK(failed == (result.failure.step != CPRG_STEP_NONE) && result.failure.err >= 0);
    FAKE_CHECK(failed || merge || fake.commits == 1);
    FAKE_CHECK(fake.faults > 0 || (failed && result.failure.err == K_ENOTEMPTY) ||
               fake.stages == 0);
    FAKE_CHECK(fake_open_count() <= 4); /* the process ends with its signals, parent, base, cache */
    free(modes_list);
    modes_list = NULL;
    modes_length = 0;
    modes_capacity = 0;
    return 0;
}
