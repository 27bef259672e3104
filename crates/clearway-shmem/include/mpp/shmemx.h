/* The old place of the header. Written by `cargo xtask header` from the table of the library; changes go there. */
#ifndef CLEARWAY_MPP_SHMEMX_H
#define CLEARWAY_MPP_SHMEMX_H

#include "../shmemx.h"

#endif /* CLEARWAY_MPP_SHMEMX_H */
