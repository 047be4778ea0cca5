/* filter.h - the system call filter of one exec. */
#ifndef CPRG_FILTER_H
#define CPRG_FILTER_H

#include <stdbool.h>

#include "report.h"
#include "request.h"

/*
 * In the child, after no_new_privs and with its status socket at EXEC_STATUS_FD: installs what the
 * request has and says which. The listener goes to init, in a message of one byte on that socket.
 */
struct step_result filter_install(const struct request *request, bool can_notify,
                                  enum cprg_filter *installed);

#endif
