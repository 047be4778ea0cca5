/* request.c - see request.h. */
#include "request.h"

#include <stdbool.h>

#include "sys.h"
#include "text.h"

#define REQUEST_FLAGS                                                                              \
    ((uint32_t)(CPRG_FLAG_NULL_STDIN | CPRG_FLAG_MERGE | CPRG_FLAG_KEEPER | CPRG_FLAG_TERMINAL))
/* A terminal is the program's standard input. */
#define REQUEST_NO_TERMINAL ((uint32_t)(CPRG_FLAG_NULL_STDIN | CPRG_FLAG_TERMINAL))

/* Takes the strings off what is left of the message: those that share bytes with each other would
   make this, and execve, as long as all of them together. */
static bool request_strings(const struct message *message, const uint32_t *offsets, uint32_t count,
                            uint32_t *left) {
    for (uint32_t i = 0; i < count; i++) {
        const char *text = message_text(message, offsets[i]);
        size_t size = text == NULL ? 0 : strlen(text) + 1;
        if (text == NULL || size > *left) {
            return false;
        }
        *left -= (uint32_t)size;
    }
    return true;
}

static uint32_t request_stream_count(const struct cprg_request *head) {
    switch ((enum cprg_request_type)head->type) {
    case CPRG_REQUEST_EXEC:
        return (head->flags & CPRG_FLAG_NULL_STDIN) != 0 ? 2 : 3;
    case CPRG_REQUEST_PACK:
    case CPRG_REQUEST_UNPACK:
        return 1;
    case CPRG_REQUEST_SIGNAL:
    case CPRG_REQUEST_KILL:
    case CPRG_REQUEST_REMOVE:
    default:
        return 0;
    }
}

static int request_check_descriptors(struct request *request,
                                     const struct channel_message *received) {
    const struct cprg_request *head = request->head;
    uint32_t streams = request_stream_count(head);
    if (head->cgroup_count > CPRG_CGROUPS_MAX) {
        return -K_E2BIG;
    }
    if (received->fd_count != streams + head->cgroup_count) {
        return -K_EBADF;
    }
    request->stream_fds = received->fds;
    request->stream_fd_count = streams;
    request->cgroup_fds = received->fds + streams;
    return 0;
}

/* A seccomp program, checked for its place and size alone: the kernel checks the rest. False if it
   is outside the message. */
static bool request_program(const struct message *message, uint32_t offset, uint32_t length,
                            const void **program) {
    *program = NULL;
    if (length == 0) {
        return true;
    }
    if (length > CPRG_FILTER_MAX || length % K_SOCK_FILTER_SIZE != 0) {
        return false;
    }
    *program = message_span(message, offset, length, 1, K_SOCK_FILTER_SIZE);
    return *program != NULL;
}

static int request_check_exec(struct request *request) {
    const struct cprg_request *head = request->head;
    const struct message *message = &request->message;
    uint32_t left = message->length;
    if (head->argc > CPRG_ARGS_MAX || head->envc > CPRG_ARGS_MAX - head->argc) {
        return -K_E2BIG;
    }
    request->argv = message_span(message, head->argv, head->argc, sizeof(uint32_t), 4);
    request->envp = message_span(message, head->envp, head->envc, sizeof(uint32_t), 4);
    if (head->argc == 0 || request->argv == NULL || request->envp == NULL ||
        !request_strings(message, request->argv, head->argc, &left) ||
        !request_strings(message, request->envp, head->envc, &left)) {
        return -K_EINVAL;
    }
    if (!request_program(message, head->notify, head->notify_length, &request->notify) ||
        !request_program(message, head->kill, head->kill_length, &request->kill) ||
        (request->notify != NULL && request->kill == NULL)) {
        return -K_EINVAL;
    }
    return 0;
}

/* What every request that starts a child has. */
static int request_check_child(struct request *request) {
    const struct cprg_request *head = request->head;
    if (head->rlimit_count > CPRG_RLIMITS_MAX) {
        return -K_E2BIG;
    }
    request->rlimits = message_span(&request->message, head->rlimits, head->rlimit_count,
                                    sizeof(struct cprg_rlimit), 8);
    request->path = message_path_text(&request->message, head->path);
    if (request->rlimits == NULL || request->path == NULL || request->path[0] != '/' ||
        (head->flags & ~REQUEST_FLAGS) != 0 ||
        (head->flags & REQUEST_NO_TERMINAL) == REQUEST_NO_TERMINAL || head->umask > 0777) {
        return -K_EINVAL;
    }
    return head->type == CPRG_REQUEST_EXEC ? request_check_exec(request) : 0;
}

int request_check(struct request *request, const unsigned char *bytes, uint32_t length,
                  const struct channel_message *received) {
    const struct cprg_request *head = (const void *)bytes;
    *request = (struct request){.message = {bytes, length}};
    if (length < sizeof *head) {
        return -K_EINVAL;
    }
    request->head = head;
    if (received->cut) {
        return -K_EMSGSIZE;
    }
    if (head->size != sizeof *head) {
        return -K_EPROTO;
    }
    switch ((enum cprg_request_type)head->type) {
    case CPRG_REQUEST_EXEC:
    case CPRG_REQUEST_PACK:
    case CPRG_REQUEST_UNPACK:
    case CPRG_REQUEST_REMOVE: {
        int result = request_check_descriptors(request, received);
        return result < 0 ? result : request_check_child(request);
    }
    case CPRG_REQUEST_SIGNAL:
        return head->value < 1 || head->value > K_SIGNAL_COUNT ? -K_EINVAL : 0;
    case CPRG_REQUEST_KILL:
        return 0;
    default:
        return -K_EINVAL;
    }
}
