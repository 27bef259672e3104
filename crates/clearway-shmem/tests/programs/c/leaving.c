/* Ends in the way that its first argument names, on PE 1; the others would wait for ever. */
#include "expect.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long never;
static int child_data = 1;

static void forks(void)
{
    pid_t child = fork();
    if (child == 0) {
        child_data = 2;
        _exit(system("exit 3") == -1);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0 && child_data == 1);
    EXPECT(system("exit 3") == 3 << 8);
    EXPECT(child_data == 1);
}

/* Behind the end of this PE a child of it lives on that has what the PE had open. */
static void dies_before_its_child(void)
{
    int ends[2];
    EXPECT(pipe(ends) == 0);
    if (fork() == 0) {
        close(ends[1]);
        char byte;
        EXPECT(read(ends[0], &byte, 1) == 0);
        sleep(10);
        _exit(0);
    }
    raise(SIGKILL);
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    start_pes(0);
    if (strcmp(way, "fork") == 0) {
        forks();
        shmem_barrier_all();
        return 0;
    }
    if (shmem_my_pe() == shmem_n_pes() - 1) {
        if (strcmp(way, "exit") == 0)
            shmem_global_exit(count > 2 ? atoi(arguments[2]) : 42);
        if (strcmp(way, "kill") == 0)
            raise(SIGKILL);
        if (strcmp(way, "orphan") == 0)
            dies_before_its_child();
        if (strcmp(way, "early") == 0)
            exit(0);
        if (strcmp(way, "outside") == 0) {
            long own = 0;
            shmem_long_put((long *) &own, &own, 1, 0);
        }
    }
    if (strcmp(way, "early") == 0)
        shmem_barrier_all();
    shmem_wait_until(&never, SHMEM_CMP_NE, 0L);
    return 0;
}
