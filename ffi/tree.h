/* tree.h - removing a directory tree without following a link and without memory of its size. */
#ifndef CPRG_TREE_H
#define CPRG_TREE_H

/* Whatever `name` is. A missing one is no error. 0 or -errno. */
int tree_remove(int dir, const char *name);

#endif
