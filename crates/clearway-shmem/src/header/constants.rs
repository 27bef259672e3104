//! Writes types, constants and handles of the header.

use crate::constants::{
    CMP_EQ, CMP_GE, CMP_GT, CMP_LE, CMP_LT, CMP_NE, CTX_NOSTORE, CTX_PRIVATE, CTX_SERIALIZED,
    CTX_SESSION_BATCH, CTX_SESSION_TOTAL_OPS, MALLOC_ATOMICS_REMOTE, MALLOC_SIGNAL_REMOTE,
    REDUCE_MIN_WRKDATA_SIZE, SIGNAL_ADD, SIGNAL_SET, SYNC_SIZE, SYNC_VALUE, TEAM_NUM_CONTEXTS,
    THREAD_FUNNELED, THREAD_MULTIPLE, THREAD_SERIALIZED, THREAD_SINGLE, VENDOR, VERSION,
};

/// `SHMEM_MAX_NAME_LEN`: the same as in other libraries, for programs with buffers of fixed size.
pub(crate) const NAME_LENGTH_MAX: usize = 64;

/// Types, with the compilers' keywords for extensions.
pub(super) const TYPES: &str = "\
/* Opaque handles of contexts and teams. */
typedef struct clearway_context *shmem_ctx_t;
typedef struct clearway_team *shmem_team_t;

typedef struct {
    int num_contexts;
} shmem_team_config_t;

typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;

/* Complex numbers of C, as an extension in C++. */
__extension__ typedef float _Complex clearway_complexf;
__extension__ typedef double _Complex clearway_complexd;

#define CLEARWAY_NORETURN __attribute__((__noreturn__))

";

/// Handles that the library always has: constants, so that a static can be initialised with one.
const HANDLES: [(&str, &str, usize); 5] = [
    ("SHMEM_CTX_DEFAULT", "shmem_ctx_t", 1),
    ("SHMEM_CTX_INVALID", "shmem_ctx_t", 0),
    ("SHMEM_TEAM_WORLD", "shmem_team_t", 1),
    ("SHMEM_TEAM_SHARED", "shmem_team_t", 2),
    ("SHMEM_TEAM_INVALID", "shmem_team_t", 0),
];

/// All `#define`s.
pub(super) fn text() -> String {
    let mut text = String::from("/* Constants. Those that begin with _SHMEM are deprecated. */\n");
    let mut define = |name: &str, value: &str| text.push_str(&format!("#define {name} {value}\n"));
    for (name, handle, value) in HANDLES {
        define(name, &format!("(({handle}) {value})"));
    }
    for (name, value) in numbers() {
        define(name, &value.to_string());
    }
    define("SHMEM_MAX_NAME_LEN", &NAME_LENGTH_MAX.to_string());
    define("SHMEM_VENDOR_STRING", &format!("\"{VENDOR}\""));
    define("SHMEM_SYNC_VALUE", &format!("{SYNC_VALUE}L"));
    define("SHMEM_SYNC_SIZE", &SYNC_SIZE.to_string());
    for name in ["BCAST", "REDUCE", "BARRIER", "COLLECT", "ALLTOALL", "ALLTOALLS"] {
        define(&format!("SHMEM_{name}_SYNC_SIZE"), "SHMEM_SYNC_SIZE");
    }
    define("SHMEM_REDUCE_MIN_WRKDATA_SIZE", &REDUCE_MIN_WRKDATA_SIZE.to_string());
    for name in OLD {
        define(&format!("_SHMEM_{name}"), &format!("SHMEM_{name}"));
    }
    text
}

/// Constants that are numbers.
fn numbers() -> [(&'static str, i64); 23] {
    [
        ("SHMEM_MAJOR_VERSION", i64::from(VERSION.0)),
        ("SHMEM_MINOR_VERSION", i64::from(VERSION.1)),
        ("SHMEM_THREAD_SINGLE", i64::from(THREAD_SINGLE)),
        ("SHMEM_THREAD_FUNNELED", i64::from(THREAD_FUNNELED)),
        ("SHMEM_THREAD_SERIALIZED", i64::from(THREAD_SERIALIZED)),
        ("SHMEM_THREAD_MULTIPLE", i64::from(THREAD_MULTIPLE)),
        ("SHMEM_CMP_EQ", i64::from(CMP_EQ)),
        ("SHMEM_CMP_NE", i64::from(CMP_NE)),
        ("SHMEM_CMP_GT", i64::from(CMP_GT)),
        ("SHMEM_CMP_GE", i64::from(CMP_GE)),
        ("SHMEM_CMP_LT", i64::from(CMP_LT)),
        ("SHMEM_CMP_LE", i64::from(CMP_LE)),
        ("SHMEM_SIGNAL_SET", i64::from(SIGNAL_SET)),
        ("SHMEM_SIGNAL_ADD", i64::from(SIGNAL_ADD)),
        ("SHMEM_CTX_PRIVATE", CTX_PRIVATE),
        ("SHMEM_CTX_SERIALIZED", CTX_SERIALIZED),
        ("SHMEM_CTX_NOSTORE", CTX_NOSTORE),
        ("SHMEM_MALLOC_ATOMICS_REMOTE", MALLOC_ATOMICS_REMOTE),
        ("SHMEM_MALLOC_SIGNAL_REMOTE", MALLOC_SIGNAL_REMOTE),
        ("SHMEM_TEAM_NUM_CONTEXTS", TEAM_NUM_CONTEXTS),
        ("SHMEM_CTX_SESSION_BATCH", CTX_SESSION_BATCH),
        ("SHMEM_CTX_SESSION_TOTAL_OPS", CTX_SESSION_TOTAL_OPS),
        ("CLEARWAY_SHMEM_ABI", 1),
    ]
}

/// What also stands under a name that begins with an underscore.
const OLD: [&str; 16] = [
    "MAJOR_VERSION",
    "MINOR_VERSION",
    "MAX_NAME_LEN",
    "VENDOR_STRING",
    "CMP_EQ",
    "CMP_NE",
    "CMP_GT",
    "CMP_GE",
    "CMP_LT",
    "CMP_LE",
    "SYNC_VALUE",
    "BCAST_SYNC_SIZE",
    "REDUCE_SYNC_SIZE",
    "BARRIER_SYNC_SIZE",
    "COLLECT_SYNC_SIZE",
    "REDUCE_MIN_WRKDATA_SIZE",
];
