/*
 * mount.c - see mount.h, mount(2), open_tree(2), mount_setattr(2), mount_namespaces(7).
 *
 * Sources are resolved on the host's root, which is still "/", with the rights of init's id;
 * targets only through root.c. Binds are recursive always: in a less privileged mount namespace
 * the kernel refuses to uncover what is mounted below a source.
 */
#include "mount.h"

#include "sys.h"

/*** One bind ***/

/* The attributes are set on the detached copy, so a mount is never seen without them. MOUNT_ATTR_*
   and MS_* have the same values for the four bits that are used here. */
static int mount_attach(int source, int target, unsigned attributes) {
    const struct kernel_mount_attr attr = {.set = attributes};
    int tree = sys_open_tree(
        source, "", K_OPEN_TREE_CLONE | K_OPEN_TREE_CLOEXEC | K_AT_RECURSIVE | K_AT_EMPTY_PATH);
    if (tree == -K_ENOSYS) {
        return mount_legacy_bind(source, target, attributes);
    }
    if (tree < 0) {
        return tree;
    }
    int result = attributes == 0 ? 0 : sys_mount_setattr(tree, K_AT_RECURSIVE, &attr);
    if (result >= 0) {
        result = sys_move_mount(tree, target);
    }
    (void)sys_close(tree);
    return result == -K_ENOSYS ? mount_legacy_bind(source, target, attributes) : result;
}

static unsigned mount_attributes(uint32_t flags) {
    unsigned attributes = K_MOUNT_ATTR_NOSUID;
    if ((flags & CPRG_BIND_DEVICE) == 0) {
        attributes |= K_MOUNT_ATTR_NODEV;
    }
    if ((flags & CPRG_BIND_READ_ONLY) != 0) {
        attributes |= K_MOUNT_ATTR_RDONLY;
    }
    if ((flags & CPRG_BIND_NOEXEC) != 0) {
        attributes |= K_MOUNT_ATTR_NOEXEC;
    }
    return attributes;
}

/* Binds `source` (closed here) on the target, made to match its type. */
static int mount_source(const struct root *root, int source, const struct root_step *step) {
    struct kernel_statx status;
    int result = sys_fstat(source, &status);
    if (result >= 0) {
        bool directory = (status.mode & K_S_IFMT) == K_S_IFDIR;
        int target = root_mount_point(root, step->target, directory, directory ? 0755 : 0644);
        result = target < 0 ? target : mount_attach(source, target, mount_attributes(step->flags));
        root_close(root, target);
    }
    (void)sys_close(source);
    return result;
}

int mount_bind(const struct root *root, const struct root_step *step) {
    int source = sys_openat(K_AT_FDCWD, step->source, K_O_PATH | K_O_CLOEXEC, 0);
    if (source == -K_ENOENT && (step->flags & CPRG_BIND_OPTIONAL) != 0) {
        return 0;
    }
    return source < 0 ? source : mount_source(root, source, step);
}

int mount_read_only(const struct root *root, const struct root_step *step) {
    int target = root_open(root, step->target, K_O_PATH);
    if (target < 0) {
        return target;
    }
    int result = mount_attach(target, target, K_MOUNT_ATTR_RDONLY);
    (void)sys_close(target);
    return result;
}

/*** New file systems ***/

/* mount(2) takes its target as a path: the working directory stands in for the descriptor, so that
   no link can be followed on the way. */
static int mount_new(int target, const char *type, unsigned flags, const char *options) {
    int result = sys_fchdir(target);
    return result < 0 ? result : sys_mount(type, ".", type, flags, options);
}

/* In a user namespace the kernel grants a new proc only while one that hides nothing is visible:
   the host's, until pivot_root. */
int mount_proc(const struct root *root, const struct root_step *step) {
    int target = root_mount_point(root, step->target, true, 0555);
    if (target < 0) {
        return target;
    }
    int result = mount_new(target, "proc", K_MS_NOSUID | K_MS_NODEV | K_MS_NOEXEC, NULL);
    root_close(root, target);
    return result;
}

int mount_data(struct root *root, const struct root_step *step) {
    if (root->data_fd >= 0) {
        return -K_EEXIST; /* one data tmpfs, so that one cap covers all */
    }
    int target = root_mount_point(root, step->target, true, 0700);
    if (target < 0) {
        return target;
    }
    int result = mount_new(target, "tmpfs", K_MS_NOSUID | K_MS_NODEV, step->source);
    root_close(root, target);
    if (result < 0) {
        return result;
    }
    root->data_target = step->target;
    root->data_fd = root_open(root, step->target, K_O_PATH | K_O_DIRECTORY);
    return root->data_fd < 0 ? root->data_fd : 0;
}

int mount_data_bind(const struct root *root, const struct root_step *step) {
    if (root->data_fd < 0) {
        return -K_ENODEV;
    }
    int result = sys_mkdirat(root->data_fd, step->source, step->mode);
    if (result >= 0 && root->program_owner != 0) {
        result = sys_fchownat(root->data_fd, step->source, root->program_owner, root->program_owner,
                              K_AT_SYMLINK_NOFOLLOW);
    }
    if (result < 0) {
        return result;
    }
    int source = sys_openat(root->data_fd, step->source,
                            K_O_PATH | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
    return source < 0 ? source : mount_source(root, source, step);
}

/*** Masks ***/

static int mount_mask_file(struct root *root, int target) {
    if (root->null_fd < 0) {
        root->null_fd = sys_openat(K_AT_FDCWD, "/dev/null", K_O_PATH | K_O_CLOEXEC, 0);
    }
    if (root->null_fd < 0) {
        return root->null_fd;
    }
    return mount_attach(root->null_fd, target,
                        K_MOUNT_ATTR_RDONLY | K_MOUNT_ATTR_NOSUID | K_MOUNT_ATTR_NOEXEC);
}

/* All masked directories share one empty tmpfs: each superblock costs time and memory. */
static int mount_mask_directory(struct root *root, int target, const char *path) {
    const unsigned flags = K_MS_RDONLY | K_MS_NOSUID | K_MS_NODEV | K_MS_NOEXEC;
    if (root->mask_fd >= 0) {
        return mount_attach(root->mask_fd, target, 0);
    }
    int result = mount_new(target, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555");
    if (result < 0) {
        return result;
    }
    root->mask_fd = root_open(root, path, K_O_PATH | K_O_DIRECTORY);
    return root->mask_fd < 0 ? root->mask_fd : 0;
}

int mount_mask(struct root *root, const struct root_step *step) {
    struct kernel_statx status;
    int target = root_open(root, step->target, K_O_PATH);
    if (target == -K_ENOENT || target == -K_ENOTDIR) {
        return 0;
    }
    if (target < 0) {
        return target;
    }
    int result = sys_fstat(target, &status);
    if (result >= 0) {
        bool directory = (status.mode & K_S_IFMT) == K_S_IFDIR;
        result = directory ? mount_mask_directory(root, target, step->target)
                           : mount_mask_file(root, target);
    }
    (void)sys_close(target);
    return result;
}
