/* What programs can ask for beyond the standard. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_SHMEMX_H
#define CLEARWAY_SHMEMX_H

#include "shmem.h"

/* An option of sessions: all their atomic operations are one, on one type. */
#define SHMEMX_CTX_SESSION_SAME_AMO 2

#endif /* CLEARWAY_SHMEMX_H */
