//! The numbers that programs are compiled with: the header has the same.
//!
//! # Source
//! OpenSHMEM 1.6, "Library Constants". Where the standard leaves a value open it is that of Sandia
//! OpenSHMEM 1.5.3.

/// The name in `SHMEM_VENDOR_STRING` and of `shmem_info_get_name`.
pub const VENDOR: &str = "Clearway OpenSHMEM";
/// `SHMEM_MAJOR_VERSION` and `SHMEM_MINOR_VERSION`.
pub const VERSION: (i32, i32) = (1, 6);

/// `SHMEM_CMP_EQ`.
pub const CMP_EQ: i32 = 1;
/// `SHMEM_CMP_NE`.
pub const CMP_NE: i32 = 2;
/// `SHMEM_CMP_GT`.
pub const CMP_GT: i32 = 3;
/// `SHMEM_CMP_GE`.
pub const CMP_GE: i32 = 4;
/// `SHMEM_CMP_LT`.
pub const CMP_LT: i32 = 5;
/// `SHMEM_CMP_LE`.
pub const CMP_LE: i32 = 6;

/// `SHMEM_SIGNAL_SET`.
pub const SIGNAL_SET: i32 = 0;
/// `SHMEM_SIGNAL_ADD`.
pub const SIGNAL_ADD: i32 = 1;

/// `SHMEM_THREAD_SINGLE`.
pub const THREAD_SINGLE: i32 = 0;
/// `SHMEM_THREAD_FUNNELED`.
pub const THREAD_FUNNELED: i32 = 1;
/// `SHMEM_THREAD_SERIALIZED`.
pub const THREAD_SERIALIZED: i32 = 2;
/// `SHMEM_THREAD_MULTIPLE`.
pub const THREAD_MULTIPLE: i32 = 3;

/// `SHMEM_CTX_PRIVATE`.
pub const CTX_PRIVATE: i64 = 1 << 0;
/// `SHMEM_CTX_SERIALIZED`.
pub const CTX_SERIALIZED: i64 = 1 << 1;
/// `SHMEM_CTX_NOSTORE`.
pub const CTX_NOSTORE: i64 = 1 << 2;

/// Where the options of a context have its class, as `SHMEMX_CTX_CLASS` puts it there: one more
/// than the class's number, 0 for a context that requests none.
pub const CTX_CLASS_SHIFT: u32 = 4;

/// `SHMEM_MALLOC_ATOMICS_REMOTE`.
pub const MALLOC_ATOMICS_REMOTE: i64 = 1 << 0;
/// `SHMEM_MALLOC_SIGNAL_REMOTE`.
pub const MALLOC_SIGNAL_REMOTE: i64 = 1 << 1;

/// `SHMEM_TEAM_NUM_CONTEXTS`.
pub const TEAM_NUM_CONTEXTS: i64 = 1 << 0;

/// `SHMEM_CTX_SESSION_BATCH`.
pub const CTX_SESSION_BATCH: i64 = 1 << 0;
/// `SHMEMX_CTX_SESSION_SAME_AMO`: all atomic operations of the session are one, on one type.
pub const CTX_SESSION_SAME_AMO: i64 = 1 << 1;
/// `SHMEM_CTX_SESSION_TOTAL_OPS`.
pub const CTX_SESSION_TOTAL_OPS: i64 = 1 << 0;

/// `SHMEM_SYNC_VALUE`.
pub const SYNC_VALUE: i64 = 0;
/// The length of every kind of `pSync` in words of `long`: `SHMEM_BCAST_SYNC_SIZE` and the others.
/// Four are used.
pub const SYNC_SIZE: usize = 16;
/// `SHMEM_REDUCE_MIN_WRKDATA_SIZE`. `pWrk` is not used.
pub const REDUCE_MIN_WRKDATA_SIZE: usize = 1;
