/* What ordinary C programs do: threads, semaphores, shared memory, executable memory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static sem_t ready;

static void *work(void *argument) {
    sem_post(&ready);
    return argument;
}

int main(void) {
    pthread_t threads[4];
    sem_init(&ready, 0, 0);
    for (long i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0) {
            return 1;
        }
    }
    for (long i = 0; i < 4; i++) {
        void *result;
        sem_wait(&ready);
        if (pthread_join(threads[i], &result) != 0 || result != (void *)i) {
            return 2;
        }
    }
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    char *shared = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (id < 0 || shared == (void *)-1) {
        return 3;
    }
    char *arguments[] = {"true", NULL};
    pid_t child;
    int status;
    if (posix_spawnp(&child, "true", NULL, NULL, arguments, environ) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        return 4;
    }
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED || mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0) {
        return 5;
    }
    if (system("exit 9") >> 8 != 9) {
        return 6;
    }
    puts("compiled");
    return 0;
}
