/* transfer.c - see transfer.h. The steps of an exec, without working directory and execve. */
#include "transfer.h"

#include "sys.h"

static void transfer_report(struct transfer_result result) {
    struct cprg_report report = report_failure(CPRG_REPORT_TRANSFERRED, result.failure.step,
                                               result.failure.index, result.failure.err);
    report.entries = result.entries;
    report.bytes = result.bytes;
    (void)report_write(EXEC_STATUS_FD, &report);
}

/* PACK and REMOVE leave nothing half-made, so SIGTERM may simply end them; UNPACK reads it from a
   descriptor and cleans up (archive-unpack.c). Everything else stays blocked. */
static void transfer_allow_sigterm(void) {
    const uint64_t mask = ~((uint64_t)1 << (K_SIGTERM - 1));
    (void)sys_sigprocmask(K_SIG_SETMASK, &mask, NULL);
}

_Noreturn void transfer_child(const struct exec_start *start) {
    const struct request *request = &start->request;
    struct step_result prepared = exec_prepare(start);
    if (prepared.err != 0) {
        exec_fail(start, prepared);
    }
    (void)sys_umask(0); /* the stream's modes are exact */
    struct cprg_report started = report_make(CPRG_REPORT_STARTED, 0);
    (void)report_write(EXEC_STATUS_FD, &started);
    if (request->head->type == CPRG_REQUEST_REMOVE) {
        transfer_allow_sigterm();
        transfer_report(archive_remove(request->path));
    } else if (request->head->type == CPRG_REQUEST_PACK) {
        transfer_allow_sigterm();
        transfer_report(archive_pack(request->path));
    } else {
        transfer_report(archive_unpack(request->path, request->head->id,
                                       (request->head->flags & CPRG_FLAG_MERGE) != 0));
    }
    sys_exit(0);
}
