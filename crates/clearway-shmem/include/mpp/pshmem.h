/* The old place of the header. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_MPP_PSHMEM_H
#define CLEARWAY_MPP_PSHMEM_H

#include "../pshmem.h"

#endif /* CLEARWAY_MPP_PSHMEM_H */
