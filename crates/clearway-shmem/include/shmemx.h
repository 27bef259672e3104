/* What programs can ask for beyond the standard. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_SHMEMX_H
#define CLEARWAY_SHMEMX_H

#include "shmem.h"

/* An option of sessions: all their atomic operations are one, on one type. */
#define SHMEMX_CTX_SESSION_SAME_AMO 2

/* An option of shmem_ctx_create and shmem_team_create_ctx: the class of what travels between hosts. CLASS is 0 for high, 1 medium, 2 low, 3 scavenger, as SHMEMX_QOS_HIGH and so on in shmemx_queue.h. */
#define SHMEMX_CTX_CLASS(CLASS) (((long)(CLASS) + 1) << 4)

#endif /* CLEARWAY_SHMEMX_H */
