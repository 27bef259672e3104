//! The rows of what OpenSHMEM 1.6 added to 1.5.
//!
//! # Source
//! OpenSHMEM 1.6, "Version 1.6" of its list of changes.

use super::Over::{Bits, Once, Types};
use super::types::{REDUCE_NUMBERS, RMA};
use super::{Row, contexts, row};

/// All of them.
pub(super) const ROWS: &[Row] = &[
    row(
        Once,
        "void shmem_query_initialized(int *initialized)",
        "setup::query_initialized(initialized)",
    ),
    row(
        Once,
        "void *shmem_team_ptr(shmem_team_t team, const void *dest, int pe)",
        "team::ptr(Team::from_raw(team), at(dest), pe).map(void)",
    ),
    row(
        Once,
        "void shmem_ctx_session_start(shmem_ctx_t ctx, long options, const shmem_ctx_session_config_t *config, \
         long config_mask)",
        "handles::session_start(ctx, options, config, config_mask)",
    ),
    row(
        Once,
        "void shmem_ctx_session_stop(shmem_ctx_t ctx)",
        "session::stop(Context::from_raw(ctx))",
    ),
    contexts(
        Types(RMA),
        "void shmem_{}_ibput(TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
         size_t nblocks, int pe)",
        IBPUTS,
    ),
    contexts(
        Bits(&[8, 16, 32, 64, 128]),
        "void shmem_ibput{}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
         size_t nblocks, int pe)",
        IBPUTS,
    ),
    contexts(
        Types(RMA),
        "void shmem_{}_ibget(TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
         size_t nblocks, int pe)",
        IBGETS,
    ),
    contexts(
        Bits(&[8, 16, 32, 64, 128]),
        "void shmem_ibget{}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t bsize, \
         size_t nblocks, int pe)",
        IBGETS,
    ),
    contexts(
        Once,
        "void shmem_signal_add(uint64_t *sig_addr, uint64_t signal, int pe)",
        "signal::add({ctx}, at(sig_addr), signal, pe)",
    ),
    contexts(
        Once,
        "void shmem_signal_set(uint64_t *sig_addr, uint64_t signal, int pe)",
        "signal::set({ctx}, at(sig_addr), signal, pe)",
    ),
    row(
        Types(REDUCE_NUMBERS),
        "int shmem_{}_sum_inscan(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems)",
        "scan::sum_inscan::<{T}>(Team::from_raw(team), at(dest), at(source), nelems)",
    ),
    row(
        Types(REDUCE_NUMBERS),
        "int shmem_{}_sum_exscan(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems)",
        "scan::sum_exscan::<{T}>(Team::from_raw(team), at(dest), at(source), nelems)",
    ),
    contexts(
        Once,
        "void shmem_pe_quiet(const int *target_pes, size_t npes)",
        "order::pe_quiet({ctx}, own(target_pes), npes)",
    ),
];

const IBPUTS: &str =
    "blocks::ibput({ctx}, at(dest), own(source), Blocks::new::<{T}>(dst, sst, bsize, nblocks), pe)";
const IBGETS: &str =
    "blocks::ibget({ctx}, own(dest), at(source), Blocks::new::<{T}>(dst, sst, bsize, nblocks), pe)";
