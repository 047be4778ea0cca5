/*
 * plan.c - see plan.h. The order of plan_build():
 *   1. the namespaces besides user and pid: now, because init is in its cgroups only now, and off
 *      the server's thread, because a network namespace costs time
 *   2. no mount event leads in or out
 *   3. the data tmpfs and the root tmpfs
 *   4. the steps of the plan, in their order
 *   5. pivot_root; the host's mounts are gone from here on
 *   6. the root read-only
 *   7. the hostname
 */
#include "plan.h"

#include "mount.h"
#include "sys.h"
#include "text.h"

#define PLAN_NAMESPACES                                                                            \
    (K_CLONE_NEWNS | K_CLONE_NEWNET | K_CLONE_NEWIPC | K_CLONE_NEWUTS | K_CLONE_NEWCGROUP)
#define PLAN_BIND_FLAGS                                                                            \
    ((unsigned)(CPRG_BIND_READ_ONLY | CPRG_BIND_NOEXEC | CPRG_BIND_OPTIONAL | CPRG_BIND_DEVICE))
#define PLAN_MODES        01777u
#define PLAN_HOSTNAME_MAX 64u /* __NEW_UTS_LEN, uname(2) */

/*** Checking ***/

static bool plan_is_absolute(const char *path) {
    return path != NULL && path[0] == '/' && path_is_plain(path + 1, CPRG_DEPTH_MAX);
}

/* Resolves the offsets of one step; false if any is wrong. */
static bool plan_read_step(const struct plan *plan, uint32_t index, struct root_step *out) {
    const struct cprg_plan_step *step = &plan->steps[index];
    *out = (struct root_step){step->flags, step->mode, NULL, step->source_length, NULL};
    out->target = message_path_text(&plan->message, step->target);
    bool placed = step->op == CPRG_OP_DATA || plan_is_absolute(out->target);
    if (!placed || (step->mode & ~PLAN_MODES) != 0 || (step->flags & ~PLAN_BIND_FLAGS) != 0) {
        return false;
    }
    switch ((enum cprg_op)step->op) {
    case CPRG_OP_FILE:
        out->source = message_span(&plan->message, step->source, step->source_length, 1, 1);
        return out->source != NULL;
    case CPRG_OP_LINK:
        out->source = message_path_text(&plan->message, step->source);
        return out->source != NULL && out->source[0] != '\0';
    case CPRG_OP_BIND:
        out->source = message_path_text(&plan->message, step->source);
        return out->source != NULL && out->source[0] == '/';
    case CPRG_OP_DATA:
    case CPRG_OP_DEVPTS:
        out->source = message_path_text(&plan->message, step->source);
        return out->source != NULL || step->source == 0;
    case CPRG_OP_DATA_BIND:
        out->source = message_path_text(&plan->message, step->source);
        return out->source != NULL && path_is_plain(out->source, 1);
    case CPRG_OP_DIRECTORY:
    case CPRG_OP_PROC:
    case CPRG_OP_MASK:
    case CPRG_OP_READ_ONLY:
        return true;
    default:
        return false;
    }
}

static bool plan_check_strings(struct plan *plan) {
    const struct cprg_plan *head = plan->head;
    plan->scratch = message_path_text(&plan->message, head->scratch);
    plan->workspace = message_path_text(&plan->message, head->workspace);
    plan->root_options = message_path_text(&plan->message, head->root_options);
    plan->hostname = message_path_text(&plan->message, head->hostname);
    return plan->scratch != NULL && plan->scratch[0] == '/' && plan_is_absolute(plan->workspace) &&
           (plan->root_options != NULL || head->root_options == 0) &&
           (plan->hostname != NULL || head->hostname == 0) &&
           (plan->hostname == NULL || strlen(plan->hostname) <= PLAN_HOSTNAME_MAX);
}

struct step_result plan_check(struct plan *plan, const unsigned char *bytes, uint32_t length,
                              bool self) {
    const struct cprg_plan *head = (const void *)bytes;
    *plan = (struct plan){.message = {bytes, length}, .head = head};
    if (length < sizeof *head || head->size != sizeof *head || head->abi != CPRG_ABI) {
        return step_of(CPRG_STEP_PLAN, -1, -K_EPROTO); /* shim and init of different builds */
    }
    if (head->step_count > CPRG_PLAN_MAX) {
        return step_of(CPRG_STEP_PLAN, -1, -K_E2BIG);
    }
    plan->steps = message_span(&plan->message, head->steps, head->step_count,
                               sizeof(struct cprg_plan_step), 4);
    bool namespaces = (head->unshare & ~PLAN_NAMESPACES) == 0 &&
                      (head->unshare & K_CLONE_NEWNS) != 0; /* else the host would be mounted on */
    if (plan->steps == NULL || !namespaces || self != (head->id_map == CPRG_MAP_SELF) ||
        !plan_check_strings(plan)) {
        return step_of(CPRG_STEP_PLAN, -1, -K_EINVAL);
    }
    for (uint32_t i = 0; i < head->step_count; i++) {
        struct root_step step;
        if (!plan_read_step(plan, i, &step)) {
            return step_of(CPRG_STEP_PLAN, (int32_t)i, -K_EINVAL);
        }
    }
    return STEP_OK;
}

const char *plan_devpts(const struct plan *plan) {
    for (uint32_t i = 0; i < plan->head->step_count; i++) {
        if (plan->steps[i].op == CPRG_OP_DEVPTS) {
            return message_path_text(&plan->message, plan->steps[i].target);
        }
    }
    return NULL;
}

/*** Building ***/

static int plan_run_step(struct root *root, uint32_t op, const struct root_step *step) {
    switch ((enum cprg_op)op) {
    case CPRG_OP_DIRECTORY:
        return root_make_directory(root, step);
    case CPRG_OP_FILE:
        return root_make_file(root, step);
    case CPRG_OP_LINK:
        return root_make_link(root, step);
    case CPRG_OP_BIND:
        return mount_bind(root, step);
    case CPRG_OP_PROC:
        return mount_proc(root, step);
    case CPRG_OP_DEVPTS:
        return mount_devpts(root, step);
    case CPRG_OP_MASK:
        return mount_mask(root, step);
    case CPRG_OP_DATA:
        return 0; /* plan_data() */
    case CPRG_OP_DATA_BIND:
        return mount_data_bind(root, step);
    case CPRG_OP_READ_ONLY:
        return mount_read_only(root, step);
    default:
        return -K_EINVAL;
    }
}

static struct step_result plan_run_steps(const struct plan *plan, struct root *root) {
    for (uint32_t i = 0; i < plan->head->step_count; i++) {
        struct root_step step;
        int result = plan_read_step(plan, i, &step) ? plan_run_step(root, plan->steps[i].op, &step)
                                                    : -K_EINVAL;
        if (result < 0) {
            return step_of(CPRG_STEP_MOUNT, (int32_t)i, result);
        }
    }
    return STEP_OK;
}

/* pivot_root(2), "pivot_root(".", ".")": the old root ends up on top of the new one, where a
   detach by the working directory takes it away. No directory for it is needed. */
static struct step_result plan_pivot(const struct root *root) {
    int result = sys_fchdir(root->fd);
    if (result < 0) {
        return step_of(CPRG_STEP_PIVOT, 0, result);
    }
    result = sys_pivot_root(".", ".");
    if (result < 0) {
        return step_of(CPRG_STEP_PIVOT, 1, result);
    }
    result = sys_umount2(".", K_MNT_DETACH);
    if (result < 0) {
        return step_of(CPRG_STEP_PIVOT, 2, result);
    }
    return step_of(CPRG_STEP_PIVOT, 3, sys_chdir("/"));
}

static struct step_result plan_read_only(const struct root *root) {
    const struct kernel_mount_attr attr = {.set = K_MOUNT_ATTR_RDONLY};
    int result = sys_mount_setattr(root->fd, 0, &attr);
    if (result == -K_ENOSYS) {
        result = sys_mount(NULL, "/", NULL,
                           K_MS_REMOUNT | K_MS_BIND | K_MS_RDONLY | K_MS_NOSUID | K_MS_NODEV, NULL);
    }
    return step_of(CPRG_STEP_READ_ONLY, 0, result);
}

static struct step_result plan_hostname(const struct plan *plan) {
    if (plan->hostname == NULL || (plan->head->unshare & K_CLONE_NEWUTS) == 0) {
        return STEP_OK; /* never the host's name */
    }
    return step_of(CPRG_STEP_HOSTNAME, 0, sys_sethostname(plan->hostname, strlen(plan->hostname)));
}

static int plan_mount_scratch(const struct plan *plan, const char *options, int *fd) {
    int result = sys_mount("tmpfs", plan->scratch, "tmpfs", K_MS_NOSUID | K_MS_NODEV, options);
    if (result >= 0) {
        *fd = sys_openat(K_AT_FDCWD, plan->scratch, K_O_PATH | K_O_DIRECTORY | K_O_CLOEXEC, 0);
        result = *fd;
    }
    return result;
}

/*
 * The data tmpfs lies below the root tmpfs, on the same host directory: the plan binds parts of it,
 * pivot_root leaves it behind with the host's mounts, and one unmount takes all of them away. Each
 * unmount makes the kernel wait for every CPU (RCU), so a second one would be felt.
 */
static struct step_result plan_data(const struct plan *plan, struct root *root) {
    for (uint32_t i = 0; i < plan->head->step_count; i++) {
        struct root_step step;
        if (plan->steps[i].op != CPRG_OP_DATA) {
            continue;
        }
        int result = -K_EEXIST; /* one data tmpfs, so that one cap covers all */
        if (root->data_fd < 0) {
            result = plan_read_step(plan, i, &step)
                         ? plan_mount_scratch(plan, step.source, &root->data_fd)
                         : -K_EINVAL;
        }
        if (result < 0) {
            return step_of(CPRG_STEP_MOUNT, (int32_t)i, result);
        }
    }
    return STEP_OK;
}

static struct step_result plan_root(const struct plan *plan, struct root *root) {
    struct step_result result = plan_data(plan, root);
    if (result.err != 0) {
        return result;
    }
    return step_of(CPRG_STEP_ROOT_TMPFS, 0,
                   plan_mount_scratch(plan, plan->root_options, &root->fd));
}

struct step_result plan_build(const struct plan *plan) {
    static struct root root; /* with a path in it, too large for a stack frame */
    root.mask_file_fd = -1;
    root.mask_directory_fd = -1;
    root.data_fd = -1;
    root.parent_fd = -1;
    /* With one mapped id, init's own is the program's, under another name inside. */
    root.program_owner = plan->head->id_map == CPRG_MAP_SELF ? 0 : plan->head->id_program;

    struct step_result result = step_of(CPRG_STEP_UNSHARE, 0, sys_unshare(plan->head->unshare));
    if (result.err == 0) {
        result = step_of(CPRG_STEP_PRIVATE, 0,
                         sys_mount(NULL, "/", NULL, K_MS_REC | K_MS_PRIVATE, NULL));
    }
    if (result.err == 0) {
        result = plan_root(plan, &root);
    }
    if (result.err == 0) {
        (void)sys_umask(0); /* the plan's modes are exact */
        result = plan_run_steps(plan, &root);
        (void)sys_umask(022);
    }
    if (result.err == 0) {
        result = plan_pivot(&root);
    }
    if (result.err == 0) {
        result = plan_read_only(&root);
    }
    if (result.err == 0) {
        result = plan_hostname(plan);
    }
    return result;
}
