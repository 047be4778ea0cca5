/* plan.h - the root plan: checked as a whole before its first effect, then carried out. */
#ifndef CPRG_PLAN_H
#define CPRG_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "message.h"
#include "report.h"

struct plan {
    struct message message;
    const struct cprg_plan *head;
    const struct cprg_plan_step *steps;
    const char *scratch;
    const char *root_options; /* NULL: the kernel's defaults */
    const char *hostname;     /* NULL: unchanged */
    const char *workspace;
};

/* `self`: the ids were mapped as CPRG_MAP_SELF does. */
struct step_result plan_check(struct plan *plan, const unsigned char *bytes, uint32_t length,
                              bool self);
/* Where the plan's first devpts is in the new root, or NULL. */
const char *plan_devpts(const struct plan *plan);
/* From the inherited namespaces to the finished root, "/" and the working directory in it. Leaves
   descriptors open that show the host: the caller closes all that it did not open itself. */
struct step_result plan_build(const struct plan *plan);

#endif
