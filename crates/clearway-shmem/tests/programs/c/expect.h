/* What the programs of these tests share: a check that says where it failed and ends the job. */
#ifndef EXPECT_H
#define EXPECT_H

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                            \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            fprintf(stderr, "%s:%d: PE %d: %s\n", __FILE__, __LINE__, shmem_my_pe(), #condition);    \
            shmem_global_exit(9);                                                                    \
        }                                                                                            \
    } while (0)

#endif
