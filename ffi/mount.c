/*
 * mount.c - see mount.h, mount(2), open_tree(2), mount_setattr(2), mount_namespaces(7).
 *
 * Sources are resolved on the host's root, which is still "/", with the rights of init's id;
 * targets only through root.c. Binds are recursive always: in a less privileged mount namespace
 * the kernel refuses to uncover what is mounted below a source.
 *
 * System calls are counted here: a launch makes few others.
 */
#include "mount.h"

#include "sys.h"
#include "text.h"

/*** One bind ***/

/* What is bound: a path, relative to a directory, or with "" the descriptor itself. */
struct mount_source {
    int dir;
    const char *path;
    bool directory;
};

static unsigned mount_empty_path(const char *path) {
    return path[0] == '\0' ? K_AT_EMPTY_PATH : 0;
}

/* A detached copy of the source, or -errno; -ENOSYS before Linux 5.2. */
static int mount_copy(const struct mount_source *source) {
    return sys_open_tree(source->dir, source->path,
                         K_OPEN_TREE_CLONE | K_OPEN_TREE_CLOEXEC | K_AT_RECURSIVE |
                             mount_empty_path(source->path));
}

static int mount_attach_legacy(const struct mount_source *source, const struct root_place *place,
                               unsigned attributes) {
    int from = source->path[0] == '\0'
                   ? source->dir
                   : sys_openat(source->dir, source->path, K_O_PATH | K_O_CLOEXEC, 0);
    int to = place->name[0] == '\0'
                 ? place->fd
                 : sys_openat(place->fd, place->name, K_O_PATH | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
    int result = from < 0 ? from : (to < 0 ? to : mount_legacy_bind(from, to, attributes));
    if (from >= 0 && from != source->dir) {
        (void)sys_close(from);
    }
    if (to >= 0 && to != place->fd) {
        (void)sys_close(to);
    }
    return result;
}

/* Mounts the copy `tree` (-ENOSYS: there is none) of the source. The attributes are set while it
   is detached, so a mount is never seen without them. MOUNT_ATTR_* and MS_* have the same values
   for the four bits that are used here. */
static int mount_attach(const struct mount_source *source, int tree, const struct root_place *place,
                        unsigned attributes) {
    const struct kernel_mount_attr attr = {.set = attributes};
    int result = tree;
    if (result >= 0 && attributes != 0) {
        result = sys_mount_setattr(tree, K_AT_RECURSIVE, &attr);
    }
    if (result >= 0) {
        /* Without MOVE_MOUNT_T_SYMLINKS a name is not followed. */
        result = sys_move_mount(tree, place->fd, place->name,
                                place->name[0] == '\0' ? K_MOVE_MOUNT_T_EMPTY_PATH : 0);
    }
    return result == -K_ENOSYS ? mount_attach_legacy(source, place, attributes) : result;
}

/* Binds the source on the target, which is made to match. */
static int mount_on_target(struct root *root, const struct mount_source *source, int tree,
                           const char *target, unsigned attributes) {
    struct root_place place;
    int result = root_place(root, target, source->directory, &place);
    if (result >= 0) {
        result = mount_attach(source, tree, &place, attributes);
        root_place_close(&place);
    }
    return result;
}

static int mount_is_directory(int dir, const char *path, bool *directory) {
    struct kernel_statx status = {0};
    int result = sys_statx(dir, path, (int)mount_empty_path(path), &status);
    *directory = result >= 0 && (status.mode & K_S_IFMT) == K_S_IFDIR;
    return result;
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

int mount_bind(struct root *root, const struct root_step *step) {
    struct mount_source source = {K_AT_FDCWD, step->source, false};
    int tree = mount_copy(&source);
    if (tree == -K_ENOENT && (step->flags & CPRG_BIND_OPTIONAL) != 0) {
        return 0;
    }
    if (tree < 0 && tree != -K_ENOSYS) {
        return tree;
    }
    int result = tree >= 0 ? mount_is_directory(tree, "", &source.directory)
                           : mount_is_directory(K_AT_FDCWD, step->source, &source.directory);
    if (result == -K_ENOENT && (step->flags & CPRG_BIND_OPTIONAL) != 0) {
        return 0;
    }
    if (result >= 0) {
        result = mount_on_target(root, &source, tree, step->target, mount_attributes(step->flags));
    }
    if (tree >= 0) {
        (void)sys_close(tree);
    }
    return result;
}

int mount_read_only(struct root *root, const struct root_step *step) {
    struct root_place place = {root_open(root, step->target, K_O_PATH), ""};
    if (place.fd < 0) {
        return place.fd;
    }
    const struct mount_source itself = {place.fd, "", false};
    int tree = mount_copy(&itself);
    int result = mount_attach(&itself, tree, &place, K_MOUNT_ATTR_RDONLY);
    if (tree >= 0) {
        (void)sys_close(tree);
    }
    (void)sys_close(place.fd);
    return result;
}

/*** New file systems ***/

/* mount(2) takes its target as a path: the working directory stands in for the descriptor, so that
   no link can be followed on the way. */
static int mount_new(int target, const char *type, unsigned flags, const char *options) {
    int result = sys_fchdir(target);
    return result < 0 ? result : sys_mount(type, ".", type, flags, options);
}

static int mount_new_on_target(struct root *root, const char *target, const char *type,
                               unsigned flags, const char *options) {
    struct root_place place;
    int result = root_place(root, target, true, &place);
    if (result < 0) {
        return result;
    }
    int fd = place.name[0] == '\0'
                 ? place.fd
                 : sys_openat(place.fd, place.name,
                              K_O_PATH | K_O_DIRECTORY | K_O_NOFOLLOW | K_O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    result = mount_new(fd, type, flags, options);
    (void)sys_close(fd);
    return result;
}

/* In a user namespace the kernel grants a new proc only while one that hides nothing is visible:
   the host's, until pivot_root. */
int mount_proc(struct root *root, const struct root_step *step) {
    return mount_new_on_target(root, step->target, "proc", K_MS_NOSUID | K_MS_NODEV | K_MS_NOEXEC,
                               NULL);
}

/* Without nodev, which would make its terminals unusable. Since Linux 4.7 each mount is an instance
   of its own. */
int mount_devpts(struct root *root, const struct root_step *step) {
    char options[256];
    size_t at = text_append(options, sizeof options, 0, "uid=");
    at = text_append_number(options, sizeof options, at, root->program_owner);
    at = text_append(options, sizeof options, at, ",gid=");
    at = text_append_number(options, sizeof options, at, root->program_owner);
    if (step->source != NULL) {
        at = text_append(options, sizeof options, at, ",");
        at = at == 0 ? 0 : text_append(options, sizeof options, at, step->source);
    }
    if (at == 0) {
        return -K_E2BIG;
    }
    return mount_new_on_target(root, step->target, "devpts", K_MS_NOSUID | K_MS_NOEXEC, options);
}

int mount_data_bind(struct root *root, const struct root_step *step) {
    const struct mount_source source = {root->data_fd, step->source, true};
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
    int tree = mount_copy(&source);
    /* A copy has the flags of the data tmpfs already. */
    unsigned more = mount_attributes(step->flags & (CPRG_BIND_READ_ONLY | CPRG_BIND_NOEXEC));
    more = tree >= 0 ? more & ~(K_MOUNT_ATTR_NOSUID | K_MOUNT_ATTR_NODEV) : more;
    result = mount_on_target(root, &source, tree, step->target, more);
    if (tree >= 0) {
        (void)sys_close(tree);
    }
    return result;
}

/*** Masks ***/

/* Hides `place` behind a copy of an earlier mask's mount, which is complete with its attributes. */
static int mount_mask_again(int earlier, const struct root_place *place, unsigned attributes) {
    const struct mount_source source = {earlier, "", false};
    int tree = mount_copy(&source);
    int result = mount_attach(&source, tree, place, tree >= 0 ? 0 : attributes);
    if (tree >= 0) {
        (void)sys_close(tree);
    }
    return result;
}

static int mount_mask_file(struct root *root, const struct root_place *place, const char *path) {
    const unsigned attributes = K_MOUNT_ATTR_RDONLY | K_MOUNT_ATTR_NOSUID | K_MOUNT_ATTR_NOEXEC;
    const struct mount_source null = {K_AT_FDCWD, "/dev/null", false};
    if (root->mask_file_fd >= 0) {
        return mount_mask_again(root->mask_file_fd, place, attributes);
    }
    int tree = mount_copy(&null);
    int result = mount_attach(&null, tree, place, attributes);
    if (tree >= 0) {
        (void)sys_close(tree);
    }
    if (result < 0) {
        return result;
    }
    root->mask_file_fd = root_open(root, path, K_O_PATH);
    return root->mask_file_fd < 0 ? root->mask_file_fd : 0;
}

/* All masked directories share one empty tmpfs: each superblock costs time and memory. */
static int mount_mask_directory(struct root *root, const struct root_place *place,
                                const char *path) {
    const unsigned flags = K_MS_RDONLY | K_MS_NOSUID | K_MS_NODEV | K_MS_NOEXEC;
    if (root->mask_directory_fd >= 0) {
        return mount_mask_again(root->mask_directory_fd, place, flags);
    }
    int result = mount_new(place->fd, "tmpfs", flags, "size=4k,nr_inodes=2,mode=0555");
    if (result < 0) {
        return result;
    }
    root->mask_directory_fd = root_open(root, path, K_O_PATH | K_O_DIRECTORY);
    return root->mask_directory_fd < 0 ? root->mask_directory_fd : 0;
}

int mount_mask(struct root *root, const struct root_step *step) {
    bool directory;
    struct root_place place = {root_open(root, step->target, K_O_PATH), ""};
    if (place.fd == -K_ENOENT || place.fd == -K_ENOTDIR) {
        return 0;
    }
    if (place.fd < 0) {
        return place.fd;
    }
    int result = mount_is_directory(place.fd, "", &directory);
    if (result >= 0) {
        result = directory ? mount_mask_directory(root, &place, step->target)
                           : mount_mask_file(root, &place, step->target);
    }
    (void)sys_close(place.fd);
    return result;
}
