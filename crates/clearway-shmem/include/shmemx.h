/* Functions beyond the standard: none so far. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_SHMEMX_H
#define CLEARWAY_SHMEMX_H

#include "shmem.h"

#endif /* CLEARWAY_SHMEMX_H */
