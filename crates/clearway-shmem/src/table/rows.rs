//! The rows of the table, chapter by chapter.

use super::Over::{self, Bits, Bytes, Once, Types};
use super::types::{
    AMO, AMO_BITWISE, AMO_EXTENDED, OLD_BITS, OLD_NUMBERS, OLD_ORDER, REDUCE_BITS, REDUCE_NUMBERS,
    REDUCE_ORDER, RMA, WAIT_OLD, WAIT_SHORT,
};
use super::{Row, contexts, old, row};

macro_rules! team_prototype {
    ($op:literal) => {
        concat!(
            "int shmem_{}_",
            $op,
            "_reduce(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nreduce)"
        )
    };
}

macro_rules! team_call {
    ($op:literal) => {
        concat!(
            "collective::reduce::<{T}>(Team::from_raw(team), ReduceOp::",
            $op,
            ", at(dest), at(source), nreduce)"
        )
    };
}

macro_rules! to_all_prototype {
    ($op:literal) => {
        concat!(
            "void shmem_{}_",
            $op,
            "_to_all(TYPE *dest, const TYPE *source, int nreduce, int PE_start, int logPE_stride, int PE_size, ",
            "TYPE *pWrk, long *pSync)"
        )
    };
}

macro_rules! to_all_call {
    ($op:literal) => {
        concat!(
            "active::reduce::<{T}>(set(PE_start, logPE_stride, PE_size), at(pSync), ReduceOp::",
            $op,
            ", at(dest), at(source), count(nreduce))"
        )
    };
}

macro_rules! active_prototype {
    ($name:literal) => {
        concat!(
            "void shmem_",
            $name,
            "{}(void *dest, const void *source, size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)"
        )
    };
}

macro_rules! active_call {
    ($name:literal) => {
        concat!(
            "active::",
            $name,
            "(set(PE_start, logPE_stride, PE_size), at(pSync), at(dest), at(source), bytes::<{T}>(nelems))"
        )
    };
}

const SIZES: Over = Bits(&[8, 16, 32, 64, 128]);
const WIDE: Over = Bits(&[32, 64]);

/// All of them.
pub const ROWS: &[&[Row]] = &[
    SETUP,
    MEMORY,
    CONTEXTS,
    TEAMS,
    RMA_ROWS,
    AMO_ROWS,
    AMO_NBI,
    SIGNALS,
    COLLECTIVES,
    REDUCTIONS,
    WAITS,
    VECTORS,
    ORDER,
    super::newer::ROWS,
    OLD,
];

const SETUP: &[Row] = &[
    row(Once, "void shmem_init(void)", "setup::init()"),
    row(
        Once,
        "int shmem_init_thread(int requested, int *provided)",
        "setup::init_thread(requested, provided)",
    ),
    row(Once, "void shmem_query_thread(int *provided)", "setup::query_thread(provided)"),
    row(Once, "void shmem_finalize(void)", "job::finalize()"),
    row(Once, "void shmem_global_exit(int status)", "setup::global_exit(status)"),
    row(Once, "int shmem_my_pe(void)", "job::my_pe()"),
    row(Once, "int shmem_n_pes(void)", "job::n_pes()"),
    row(Once, "int shmem_pe_accessible(int pe)", "job::pe_accessible(pe)"),
    row(
        Once,
        "int shmem_addr_accessible(const void *addr, int pe)",
        "job::addr_accessible(at(addr), pe)",
    ),
    row(Once, "void *shmem_ptr(const void *dest, int pe)", "job::ptr(at(dest), pe).map(void)"),
    row(
        Once,
        "void shmem_info_get_version(int *major, int *minor)",
        "setup::version(major, minor)",
    ),
    row(Once, "void shmem_info_get_name(char *name)", "setup::name(name)"),
    row(Once, "void shmem_pcontrol(int level, ...)", "setup::pcontrol(level)"),
];

const MEMORY: &[Row] = &[
    row(Once, "void *shmem_malloc(size_t size)", "heap::malloc(size).map(void)"),
    row(
        Once,
        "void *shmem_calloc(size_t count, size_t size)",
        "heap::calloc(count, size).map(void)",
    ),
    row(
        Once,
        "void *shmem_align(size_t alignment, size_t size)",
        "heap::align(alignment, size).map(void)",
    ),
    row(
        Once,
        "void *shmem_realloc(void *ptr, size_t size)",
        "heap::realloc(at(ptr), size).map(void)",
    ),
    row(
        Once,
        "void *shmem_malloc_with_hints(size_t size, long hints)",
        "heap::malloc_with_hints(size, hints).map(void)",
    ),
    row(Once, "void shmem_free(void *ptr)", "heap::free(at(ptr))"),
];

const CONTEXTS: &[Row] = &[
    row(
        Once,
        "int shmem_ctx_create(long options, shmem_ctx_t *ctx)",
        "handles::ctx_create(options, ctx)",
    ),
    row(
        Once,
        "void shmem_ctx_destroy(shmem_ctx_t ctx)",
        "context::destroy(Context::from_raw(ctx))",
    ),
    row(
        Once,
        "int shmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)",
        "handles::ctx_get_team(ctx, team)",
    ),
    row(
        Once,
        "int shmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)",
        "handles::team_create_ctx(team, options, ctx)",
    ),
];

const TEAMS: &[Row] = &[
    row(Once, "int shmem_team_my_pe(shmem_team_t team)", "team::my_pe(Team::from_raw(team))"),
    row(Once, "int shmem_team_n_pes(shmem_team_t team)", "team::n_pes(Team::from_raw(team))"),
    row(
        Once,
        "int shmem_team_get_config(shmem_team_t team, long config_mask, shmem_team_config_t *config)",
        "handles::team_get_config(team, config_mask, config)",
    ),
    row(
        Once,
        "int shmem_team_translate_pe(shmem_team_t src_team, int src_pe, shmem_team_t dest_team)",
        "team::translate_pe(Team::from_raw(src_team), src_pe, Team::from_raw(dest_team))",
    ),
    row(
        Once,
        "int shmem_team_split_strided(shmem_team_t parent_team, int start, int stride, int size, \
         const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)",
        "handles::team_split_strided(parent_team, (start, stride, size), (config, config_mask), new_team)",
    ),
    row(
        Once,
        "int shmem_team_split_2d(shmem_team_t parent_team, int xrange, const shmem_team_config_t *xaxis_config, \
         long xaxis_mask, shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, long yaxis_mask, \
         shmem_team_t *yaxis_team)",
        "handles::team_split_2d(parent_team, xrange, [(xaxis_config, xaxis_mask), (yaxis_config, yaxis_mask)], \
         [xaxis_team, yaxis_team])",
    ),
    row(Once, "void shmem_team_destroy(shmem_team_t team)", "team::destroy(Team::from_raw(team))"),
];

/// `void` routines that move elements: over types, over sizes and over bytes.
const RMA_ROWS: &[Row] = &[
    contexts(Types(RMA), PUT, PUTS),
    contexts(SIZES, PUT_VOID, PUTS),
    contexts(Bytes, PUT_VOID, PUTS),
    contexts(
        Types(RMA),
        "void shmem_{}_p(TYPE *dest, TYPE value, int pe)",
        "rma::p::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(Types(RMA), IPUT, IPUTS),
    contexts(SIZES, IPUT_VOID, IPUTS),
    contexts(Types(RMA), GET, GETS),
    contexts(SIZES, GET_VOID, GETS),
    contexts(Bytes, GET_VOID, GETS),
    contexts(
        Types(RMA),
        "TYPE shmem_{}_g(const TYPE *source, int pe)",
        "rma::g::<{T}>({ctx}, at(source), pe)",
    ),
    contexts(Types(RMA), IGET, IGETS),
    contexts(SIZES, IGET_VOID, IGETS),
    contexts(
        Types(RMA),
        "void shmem_{}_put_nbi(TYPE *dest, const TYPE *source, size_t nelems, int pe)",
        PUTS_NBI,
    ),
    contexts(
        SIZES,
        "void shmem_put{}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        PUTS_NBI,
    ),
    contexts(
        Bytes,
        "void shmem_put{}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        PUTS_NBI,
    ),
    contexts(
        Types(RMA),
        "void shmem_{}_get_nbi(TYPE *dest, const TYPE *source, size_t nelems, int pe)",
        GETS_NBI,
    ),
    contexts(
        SIZES,
        "void shmem_get{}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        GETS_NBI,
    ),
    contexts(
        Bytes,
        "void shmem_get{}_nbi(void *dest, const void *source, size_t nelems, int pe)",
        GETS_NBI,
    ),
];

const PUT: &str = "void shmem_{}_put(TYPE *dest, const TYPE *source, size_t nelems, int pe)";
const PUT_VOID: &str = "void shmem_put{}(void *dest, const void *source, size_t nelems, int pe)";
const PUTS: &str = "rma::put({ctx}, at(dest), own(source), bytes::<{T}>(nelems), pe)";
const PUTS_NBI: &str = "rma::put_nbi({ctx}, at(dest), own(source), bytes::<{T}>(nelems), pe)";
const GET: &str = "void shmem_{}_get(TYPE *dest, const TYPE *source, size_t nelems, int pe)";
const GET_VOID: &str = "void shmem_get{}(void *dest, const void *source, size_t nelems, int pe)";
const GETS: &str = "rma::get({ctx}, own(dest), at(source), bytes::<{T}>(nelems), pe)";
const GETS_NBI: &str = "rma::get_nbi({ctx}, own(dest), at(source), bytes::<{T}>(nelems), pe)";
const IPUT: &str = "void shmem_{}_iput(TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)";
const IPUT_VOID: &str = "void shmem_iput{}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)";
const IPUTS: &str =
    "rma::iput({ctx}, at(dest), own(source), dst, sst, nelems, size_of::<{T}>(), pe)";
const IGET: &str = "void shmem_{}_iget(TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)";
const IGET_VOID: &str = "void shmem_iget{}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)";
const IGETS: &str =
    "rma::iget({ctx}, own(dest), at(source), dst, sst, nelems, size_of::<{T}>(), pe)";

const AMO_ROWS: &[Row] = &[
    contexts(Types(AMO_EXTENDED), "TYPE shmem_{}_atomic_fetch(const TYPE *source, int pe)", FETCH),
    contexts(Types(AMO_EXTENDED), "void shmem_{}_atomic_set(TYPE *dest, TYPE value, int pe)", SET),
    contexts(
        Types(AMO_EXTENDED),
        "TYPE shmem_{}_atomic_swap(TYPE *dest, TYPE value, int pe)",
        SWAP,
    ),
    contexts(
        Types(AMO),
        "TYPE shmem_{}_atomic_compare_swap(TYPE *dest, TYPE cond, TYPE value, int pe)",
        CSWAP,
    ),
    contexts(Types(AMO), "TYPE shmem_{}_atomic_fetch_inc(TYPE *dest, int pe)", FINC),
    contexts(Types(AMO), "void shmem_{}_atomic_inc(TYPE *dest, int pe)", INC),
    contexts(Types(AMO), "TYPE shmem_{}_atomic_fetch_add(TYPE *dest, TYPE value, int pe)", FADD),
    contexts(Types(AMO), "void shmem_{}_atomic_add(TYPE *dest, TYPE value, int pe)", ADD),
    contexts(
        Types(AMO_BITWISE),
        "TYPE shmem_{}_atomic_fetch_and(TYPE *dest, TYPE value, int pe)",
        "amo::fetch_and::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_and(TYPE *dest, TYPE value, int pe)",
        "amo::and::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "TYPE shmem_{}_atomic_fetch_or(TYPE *dest, TYPE value, int pe)",
        "amo::fetch_or::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_or(TYPE *dest, TYPE value, int pe)",
        "amo::or::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "TYPE shmem_{}_atomic_fetch_xor(TYPE *dest, TYPE value, int pe)",
        "amo::fetch_xor::<{T}>({ctx}, at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_xor(TYPE *dest, TYPE value, int pe)",
        "amo::xor::<{T}>({ctx}, at(dest), value, pe)",
    ),
];

const FETCH: &str = "amo::fetch::<{T}>({ctx}, at(source), pe)";
const SET: &str = "amo::set::<{T}>({ctx}, at(dest), value, pe)";
const SWAP: &str = "amo::swap::<{T}>({ctx}, at(dest), value, pe)";
const CSWAP: &str = "amo::compare_swap::<{T}>({ctx}, at(dest), cond, value, pe)";
const FINC: &str = "amo::fetch_add::<{T}>({ctx}, at(dest), 1, pe)";
const INC: &str = "amo::add::<{T}>({ctx}, at(dest), 1, pe)";
const FADD: &str = "amo::fetch_add::<{T}>({ctx}, at(dest), value, pe)";
const ADD: &str = "amo::add::<{T}>({ctx}, at(dest), value, pe)";

const AMO_NBI: &[Row] = &[
    contexts(
        Types(AMO_EXTENDED),
        "void shmem_{}_atomic_fetch_nbi(TYPE *fetch, const TYPE *source, int pe)",
        "amo::fetch_nbi::<{T}>({ctx}, own(fetch), at(source), pe)",
    ),
    contexts(
        Types(AMO_EXTENDED),
        "void shmem_{}_atomic_swap_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe)",
        "amo::swap_nbi::<{T}>({ctx}, own(fetch), at(dest), value, pe)",
    ),
    contexts(
        Types(AMO),
        "void shmem_{}_atomic_compare_swap_nbi(TYPE *fetch, TYPE *dest, TYPE cond, TYPE value, int pe)",
        "amo::compare_swap_nbi::<{T}>({ctx}, own(fetch), at(dest), cond, value, pe)",
    ),
    contexts(
        Types(AMO),
        "void shmem_{}_atomic_fetch_inc_nbi(TYPE *fetch, TYPE *dest, int pe)",
        "amo::fetch_add_nbi::<{T}>({ctx}, own(fetch), at(dest), 1, pe)",
    ),
    contexts(
        Types(AMO),
        "void shmem_{}_atomic_fetch_add_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe)",
        "amo::fetch_add_nbi::<{T}>({ctx}, own(fetch), at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_fetch_and_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe)",
        "amo::fetch_and_nbi::<{T}>({ctx}, own(fetch), at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_fetch_or_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe)",
        "amo::fetch_or_nbi::<{T}>({ctx}, own(fetch), at(dest), value, pe)",
    ),
    contexts(
        Types(AMO_BITWISE),
        "void shmem_{}_atomic_fetch_xor_nbi(TYPE *fetch, TYPE *dest, TYPE value, int pe)",
        "amo::fetch_xor_nbi::<{T}>({ctx}, own(fetch), at(dest), value, pe)",
    ),
];

const SIGNALS: &[Row] = &[
    contexts(
        Types(RMA),
        "void shmem_{}_put_signal(TYPE *dest, const TYPE *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, \
         int sig_op, int pe)",
        PUT_SIGNAL,
    ),
    contexts(SIZES, PUT_SIGNAL_VOID, PUT_SIGNAL),
    contexts(Bytes, PUT_SIGNAL_VOID, PUT_SIGNAL),
    contexts(
        Types(RMA),
        "void shmem_{}_put_signal_nbi(TYPE *dest, const TYPE *source, size_t nelems, uint64_t *sig_addr, \
         uint64_t signal, int sig_op, int pe)",
        PUT_SIGNAL_NBI,
    ),
    contexts(SIZES, PUT_SIGNAL_NBI_VOID, PUT_SIGNAL_NBI),
    contexts(Bytes, PUT_SIGNAL_NBI_VOID, PUT_SIGNAL_NBI),
    row(
        Once,
        "uint64_t shmem_signal_fetch(const uint64_t *sig_addr)",
        "signal::fetch(at(sig_addr))",
    ),
    row(
        Once,
        "uint64_t shmem_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value)",
        "signal::wait_until(at(sig_addr), cmp, cmp_value)",
    ),
];

const PUT_SIGNAL: &str = "signal::put({ctx}, at(dest), own(source), bytes::<{T}>(nelems), at(sig_addr), signal, sig_op, pe)";
const PUT_SIGNAL_NBI: &str = "signal::put_nbi({ctx}, at(dest), own(source), bytes::<{T}>(nelems), at(sig_addr), signal, sig_op, pe)";
const PUT_SIGNAL_VOID: &str = "void shmem_put{}_signal(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, \
                               uint64_t signal, int sig_op, int pe)";
const PUT_SIGNAL_NBI_VOID: &str = "void shmem_put{}_signal_nbi(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, \
     uint64_t signal, int sig_op, int pe)";

const COLLECTIVES: &[Row] = &[
    row(Once, "void shmem_barrier_all(void)", "collective::barrier_all()"),
    row(Once, "void shmem_sync_all(void)", "collective::sync_all()"),
    row(Once, "int shmem_team_sync(shmem_team_t team)", "collective::sync(Team::from_raw(team))"),
    row(
        Types(RMA),
        "int shmem_{}_broadcast(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems, int PE_root)",
        BROADCAST,
    ),
    row(
        Bytes,
        "int shmem_broadcast{}(shmem_team_t team, void *dest, const void *source, size_t nelems, int PE_root)",
        BROADCAST,
    ),
    row(
        Types(RMA),
        "int shmem_{}_collect(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems)",
        COLLECT,
    ),
    row(
        Bytes,
        "int shmem_collect{}(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        COLLECT,
    ),
    row(
        Types(RMA),
        "int shmem_{}_fcollect(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems)",
        FCOLLECT,
    ),
    row(
        Bytes,
        "int shmem_fcollect{}(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        FCOLLECT,
    ),
    row(
        Types(RMA),
        "int shmem_{}_alltoall(shmem_team_t team, TYPE *dest, const TYPE *source, size_t nelems)",
        ALLTOALL,
    ),
    row(
        Bytes,
        "int shmem_alltoall{}(shmem_team_t team, void *dest, const void *source, size_t nelems)",
        ALLTOALL,
    ),
    row(
        Types(RMA),
        "int shmem_{}_alltoalls(shmem_team_t team, TYPE *dest, const TYPE *source, ptrdiff_t dst, ptrdiff_t sst, \
         size_t nelems)",
        ALLTOALLS,
    ),
    row(
        Bytes,
        "int shmem_alltoalls{}(shmem_team_t team, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, \
         size_t nelems)",
        ALLTOALLS,
    ),
];

const BROADCAST: &str = "collective::broadcast(Team::from_raw(team), at(dest), at(source), bytes::<{T}>(nelems), PE_root)";
const COLLECT: &str =
    "collective::collect(Team::from_raw(team), at(dest), at(source), bytes::<{T}>(nelems))";
const FCOLLECT: &str =
    "collective::fcollect(Team::from_raw(team), at(dest), at(source), bytes::<{T}>(nelems))";
const ALLTOALL: &str =
    "collective::alltoall(Team::from_raw(team), at(dest), at(source), bytes::<{T}>(nelems))";
const ALLTOALLS: &str = "collective::alltoalls(Team::from_raw(team), at(dest), at(source), dst, sst, nelems, size_of::<{T}>())";

const REDUCTIONS: &[Row] = &[
    row(Types(REDUCE_BITS), team_prototype!("and"), team_call!("And")),
    row(Types(REDUCE_BITS), team_prototype!("or"), team_call!("Or")),
    row(Types(REDUCE_BITS), team_prototype!("xor"), team_call!("Xor")),
    row(Types(REDUCE_ORDER), team_prototype!("max"), team_call!("Max")),
    row(Types(REDUCE_ORDER), team_prototype!("min"), team_call!("Min")),
    row(Types(REDUCE_NUMBERS), team_prototype!("sum"), team_call!("Sum")),
    row(Types(REDUCE_NUMBERS), team_prototype!("prod"), team_call!("Prod")),
];

const WAITS: &[Row] = &[
    row(Types(AMO), WAIT_UNTIL, UNTIL),
    old(Types(WAIT_SHORT), WAIT_UNTIL, UNTIL),
    row(Types(AMO), WAIT_UNTIL_ALL, WAIT_UNTIL_ALL_CALL),
    old(Types(WAIT_SHORT), WAIT_UNTIL_ALL, WAIT_UNTIL_ALL_CALL),
    row(Types(AMO), WAIT_UNTIL_ANY, WAIT_UNTIL_ANY_CALL),
    old(Types(WAIT_SHORT), WAIT_UNTIL_ANY, WAIT_UNTIL_ANY_CALL),
    row(Types(AMO), WAIT_UNTIL_SOME, WAIT_UNTIL_SOME_CALL),
    old(Types(WAIT_SHORT), WAIT_UNTIL_SOME, WAIT_UNTIL_SOME_CALL),
    row(Types(AMO), TEST, "wait::test::<{T}>(at(ivar), cmp, cmp_value)"),
    old(Types(WAIT_SHORT), TEST, "wait::test::<{T}>(at(ivar), cmp, cmp_value)"),
    row(Types(AMO), TEST_ALL, TEST_ALL_CALL),
    old(Types(WAIT_SHORT), TEST_ALL, TEST_ALL_CALL),
    row(Types(AMO), TEST_ANY, TEST_ANY_CALL),
    old(Types(WAIT_SHORT), TEST_ANY, TEST_ANY_CALL),
    row(Types(AMO), TEST_SOME, TEST_SOME_CALL),
    old(Types(WAIT_SHORT), TEST_SOME, TEST_SOME_CALL),
];

const WAIT_UNTIL: &str = "void shmem_{}_wait_until(volatile TYPE *ivar, int cmp, TYPE cmp_value)";
const UNTIL: &str = "wait::until::<{T}>(at(ivar), cmp, cmp_value)";
const TEST: &str = "int shmem_{}_test(volatile TYPE *ivar, int cmp, TYPE cmp_value)";

const WAIT_UNTIL_ALL: &str = "void shmem_{}_wait_until_all(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE cmp_value)";
const WAIT_UNTIL_ALL_CALL: &str =
    "wait::until_all::<{T}>(at(ivars), nelems, own(status), cmp, cmp_value)";
const WAIT_UNTIL_ANY: &str = "size_t shmem_{}_wait_until_any(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE cmp_value)";
const WAIT_UNTIL_ANY_CALL: &str =
    "wait::until_any::<{T}>(at(ivars), nelems, own(status), cmp, cmp_value)";
const WAIT_UNTIL_SOME: &str = "size_t shmem_{}_wait_until_some(volatile TYPE *ivars, size_t nelems, size_t *indices, const int *status, int cmp, \
         TYPE cmp_value)";
const WAIT_UNTIL_SOME_CALL: &str =
    "wait::until_some::<{T}>(at(ivars), nelems, own(indices), own(status), cmp, cmp_value)";
const TEST_ALL: &str = "int shmem_{}_test_all(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE cmp_value)";
const TEST_ALL_CALL: &str = "wait::test_all::<{T}>(at(ivars), nelems, own(status), cmp, cmp_value)";
const TEST_ANY: &str = "size_t shmem_{}_test_any(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE cmp_value)";
const TEST_ANY_CALL: &str = "wait::test_any::<{T}>(at(ivars), nelems, own(status), cmp, cmp_value)";
const TEST_SOME: &str = "size_t shmem_{}_test_some(volatile TYPE *ivars, size_t nelems, size_t *indices, const int *status, int cmp, \
         TYPE cmp_value)";
const TEST_SOME_CALL: &str =
    "wait::test_some::<{T}>(at(ivars), nelems, own(indices), own(status), cmp, cmp_value)";

/// Programs of 1.5 hand in `TYPE *cmp_values`, those of 1.6 may hand in what they promised not to
/// change.
const VECTORS: &[Row] = &[
    row(
        Types(AMO),
        "void shmem_{}_wait_until_all_vector(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, \
         const TYPE *cmp_values)",
        "wait::until_all_vector::<{T}>(at(ivars), nelems, own(status), cmp, own(cmp_values))",
    ),
    row(
        Types(AMO),
        "size_t shmem_{}_wait_until_any_vector(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, \
         const TYPE *cmp_values)",
        "wait::until_any_vector::<{T}>(at(ivars), nelems, own(status), cmp, own(cmp_values))",
    ),
    row(
        Types(AMO),
        "size_t shmem_{}_wait_until_some_vector(volatile TYPE *ivars, size_t nelems, size_t *indices, const int *status, \
         int cmp, const TYPE *cmp_values)",
        "wait::until_some_vector::<{T}>(at(ivars), nelems, own(indices), own(status), cmp, own(cmp_values))",
    ),
    row(
        Types(AMO),
        "int shmem_{}_test_all_vector(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, \
         const TYPE *cmp_values)",
        "wait::test_all_vector::<{T}>(at(ivars), nelems, own(status), cmp, own(cmp_values))",
    ),
    row(
        Types(AMO),
        "size_t shmem_{}_test_any_vector(volatile TYPE *ivars, size_t nelems, const int *status, int cmp, \
         const TYPE *cmp_values)",
        "wait::test_any_vector::<{T}>(at(ivars), nelems, own(status), cmp, own(cmp_values))",
    ),
    row(
        Types(AMO),
        "size_t shmem_{}_test_some_vector(volatile TYPE *ivars, size_t nelems, size_t *indices, const int *status, int cmp, \
         const TYPE *cmp_values)",
        "wait::test_some_vector::<{T}>(at(ivars), nelems, own(indices), own(status), cmp, own(cmp_values))",
    ),
];

const ORDER: &[Row] = &[
    contexts(Once, "void shmem_fence(void)", "order::fence({ctx})"),
    contexts(Once, "void shmem_quiet(void)", "order::quiet({ctx})"),
    row(Once, "void shmem_set_lock(long *lock)", "lock::set(at(lock))"),
    row(Once, "void shmem_clear_lock(long *lock)", "lock::clear(at(lock))"),
    row(Once, "int shmem_test_lock(long *lock)", "lock::test(at(lock))"),
];

/// What the standard deprecates and still demands. The names that the `atomic` ones replaced are
/// there for all types of these, as other libraries have them; the standard lists five.
const OLD: &[Row] = &[
    old(Once, "void start_pes(int npes)", "setup::start_pes(npes)"),
    old(Once, "int _my_pe(void)", "job::my_pe()"),
    old(Once, "int _num_pes(void)", "job::n_pes()"),
    old(Once, "void *shmalloc(size_t size)", "heap::malloc(size).map(void)"),
    old(Once, "void shfree(void *ptr)", "heap::free(at(ptr))"),
    old(Once, "void *shrealloc(void *ptr, size_t size)", "heap::realloc(at(ptr), size).map(void)"),
    old(
        Once,
        "void *shmemalign(size_t alignment, size_t size)",
        "heap::align(alignment, size).map(void)",
    ),
    old(Types(AMO_EXTENDED), "TYPE shmem_{}_fetch(const TYPE *source, int pe)", FETCH),
    old(Types(AMO_EXTENDED), "void shmem_{}_set(TYPE *dest, TYPE value, int pe)", SET),
    old(Types(AMO_EXTENDED), "TYPE shmem_{}_swap(TYPE *dest, TYPE value, int pe)", SWAP),
    old(Types(AMO), "TYPE shmem_{}_cswap(TYPE *dest, TYPE cond, TYPE value, int pe)", CSWAP),
    old(Types(AMO), "TYPE shmem_{}_finc(TYPE *dest, int pe)", FINC),
    old(Types(AMO), "void shmem_{}_inc(TYPE *dest, int pe)", INC),
    old(Types(AMO), "TYPE shmem_{}_fadd(TYPE *dest, TYPE value, int pe)", FADD),
    old(Types(AMO), "void shmem_{}_add(TYPE *dest, TYPE value, int pe)", ADD),
    old(
        Once,
        "void shmem_wait_until(volatile long *ivar, int cmp, long cmp_value)",
        "wait::until::<i64>(at(ivar), cmp, cmp_value)",
    ),
    old(
        Once,
        "void shmem_wait(volatile long *ivar, long cmp_value)",
        "wait::until::<i64>(at(ivar), CMP_NE, cmp_value)",
    ),
    old(
        Types(WAIT_OLD),
        "void shmem_{}_wait(volatile TYPE *ivar, TYPE cmp_value)",
        "wait::until::<{T}>(at(ivar), CMP_NE, cmp_value)",
    ),
    old(
        Once,
        "void shmem_barrier(int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "active::barrier(set(PE_start, logPE_stride, PE_size), at(pSync))",
    ),
    old(
        Once,
        "void shmem_sync(int PE_start, int logPE_stride, int PE_size, long *pSync)",
        "active::sync(set(PE_start, logPE_stride, PE_size), at(pSync))",
    ),
    old(
        WIDE,
        "void shmem_broadcast{}(void *dest, const void *source, size_t nelems, int PE_root, int PE_start, \
         int logPE_stride, int PE_size, long *pSync)",
        "active::broadcast(set(PE_start, logPE_stride, PE_size), at(pSync), at(dest), at(source), bytes::<{T}>(nelems), PE_root)",
    ),
    old(WIDE, active_prototype!("collect"), active_call!("collect")),
    old(WIDE, active_prototype!("fcollect"), active_call!("fcollect")),
    old(WIDE, active_prototype!("alltoall"), active_call!("alltoall")),
    old(
        WIDE,
        "void shmem_alltoalls{}(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int PE_start, \
         int logPE_stride, int PE_size, long *pSync)",
        "active::alltoalls(set(PE_start, logPE_stride, PE_size), at(pSync), at(dest), at(source), dst, sst, nelems, size_of::<{T}>())",
    ),
    old(Types(OLD_BITS), to_all_prototype!("and"), to_all_call!("And")),
    old(Types(OLD_BITS), to_all_prototype!("or"), to_all_call!("Or")),
    old(Types(OLD_BITS), to_all_prototype!("xor"), to_all_call!("Xor")),
    old(Types(OLD_ORDER), to_all_prototype!("max"), to_all_call!("Max")),
    old(Types(OLD_ORDER), to_all_prototype!("min"), to_all_call!("Min")),
    old(Types(OLD_NUMBERS), to_all_prototype!("sum"), to_all_call!("Sum")),
    old(Types(OLD_NUMBERS), to_all_prototype!("prod"), to_all_call!("Prod")),
];
