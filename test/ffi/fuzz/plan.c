/*
 * plan.c - fuzzes the root plan: the rest of the input is the message. A plan that passes its check
 * is built, and every path of it is then held to the rules (files.c).
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernel.h"

const struct fake_hooks fake_hooks = {0};

/* Most that a build may leave open: root, data, parent and two masks. */
#define PLAN_FDS_MAX 5u

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size <= FAKE_HEADER || size > FAKE_HEADER + CPRG_REQUEST_MAX) {
        return -1;
    }
    struct plan plan;
    fake_start(input, size);
    fake.single_names = true;
    bool self = (fake.header[FAKE_TARGET] & 1) != 0;
    unsigned char *message = malloc(fake.text_size); /* so that the end of it is guarded */
    FAKE_CHECK(message != NULL);
    memcpy(message, fake.text, fake.text_size);
    struct step_result result = plan_check(&plan, message, (uint32_t)fake.text_size, self);
    FAKE_CHECK((result.err != 0) == (result.step == CPRG_STEP_PLAN) && fake.calls == 0);
    if (result.err == 0) {
        fake.scratch = plan.scratch;
        result = plan_build(&plan);
        FAKE_CHECK((result.err == 0) == (result.step == CPRG_STEP_NONE) && result.err >= 0);
        FAKE_CHECK(fake_open_count() <= PLAN_FDS_MAX);
    }
    free(message);
    return 0;
}
