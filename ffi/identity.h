/* identity.h - ids and capabilities. Every function returns 0 or -errno. */
#ifndef CPRG_IDENTITY_H
#define CPRG_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the capabilities that building the root takes inheritable and ambient. */
int identity_keep_over_exec(void);
/* Uid and gid 0 of the sandbox's user namespace, no groups. `denied_ok`: setgroups is forbidden
   by the map (user_namespaces(7)), so the groups stay. */
int identity_become_root(bool denied_ok);
/* When the root is built: nothing inheritable or ambient, no_new_privs, not dumpable; permitted and
   effective are SETUID, SETGID, KILL and, until identity_seal_init(), SETPCAP. */
int identity_reduce_init(void);
/* init's last state: an empty bounding set, and SETPCAP gone with the last use of it. */
int identity_seal_init(void);
/* The program's: id for uid and gid, no groups, all five sets empty, and proof of that. */
int identity_become_program(uint32_t id, bool denied_ok);
int identity_no_new_privs(void);

#endif
