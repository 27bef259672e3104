/* The old place of the header. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_MPP_SHMEM_H
#define CLEARWAY_MPP_SHMEM_H

#include "../shmem.h"

#endif /* CLEARWAY_MPP_SHMEM_H */
