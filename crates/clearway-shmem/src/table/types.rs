//! Says which types the standard's functions have: its tables, by the name that a type has in a
//! function's.
//!
//! # Source
//! OpenSHMEM 1.6, the tables of "Standard RMA types", of AMO types and of reductions.

/// A type of the standard's tables.
#[derive(Debug, PartialEq, Eq)]
pub struct Type {
    /// As it stands in names of functions.
    pub name: &'static str,
    /// In C.
    pub c: &'static str,
    /// The name of the fundamental type that it is on every machine with `long` of 64 bits.
    pub is: &'static str,
    /// In Rust.
    pub rust: &'static str,
}

const fn own(name: &'static str, c: &'static str, rust: &'static str) -> Type {
    Type { name, c, is: name, rust }
}

const fn alias(name: &'static str, c: &'static str, is: &'static str, rust: &'static str) -> Type {
    Type { name, c, is, rust }
}

/// All types.
pub const TYPES: &[Type] = &[
    own("float", "float", "f32"),
    own("double", "double", "f64"),
    own("longdouble", "long double", "LongDouble"),
    own("char", "char", "c_char"),
    own("schar", "signed char", "i8"),
    own("short", "short", "i16"),
    own("int", "int", "i32"),
    own("long", "long", "i64"),
    own("longlong", "long long", "i64"),
    own("uchar", "unsigned char", "u8"),
    own("ushort", "unsigned short", "u16"),
    own("uint", "unsigned int", "u32"),
    own("ulong", "unsigned long", "u64"),
    own("ulonglong", "unsigned long long", "u64"),
    alias("int8", "int8_t", "schar", "i8"),
    alias("int16", "int16_t", "short", "i16"),
    alias("int32", "int32_t", "int", "i32"),
    alias("int64", "int64_t", "long", "i64"),
    alias("uint8", "uint8_t", "uchar", "u8"),
    alias("uint16", "uint16_t", "ushort", "u16"),
    alias("uint32", "uint32_t", "uint", "u32"),
    alias("uint64", "uint64_t", "ulong", "u64"),
    alias("size", "size_t", "ulong", "u64"),
    alias("ptrdiff", "ptrdiff_t", "long", "i64"),
    own("complexd", "clearway_complexd", "ComplexDouble"),
    own("complexf", "clearway_complexf", "ComplexFloat"),
];

/// Names of types.
pub type Names = &'static [&'static str];

/// "Standard RMA types".
pub(super) const RMA: Names = &[
    "float",
    "double",
    "longdouble",
    "char",
    "schar",
    "short",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// "Standard AMO types".
pub(super) const AMO: Names = &[
    "int",
    "long",
    "longlong",
    "uint",
    "ulong",
    "ulonglong",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// "Extended AMO types".
pub(super) const AMO_EXTENDED: Names = &[
    "float",
    "double",
    "int",
    "long",
    "longlong",
    "uint",
    "ulong",
    "ulonglong",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
];
/// "Bitwise AMO types".
pub(super) const AMO_BITWISE: Names =
    &["uint", "ulong", "ulonglong", "int32", "int64", "uint32", "uint64"];
/// Types that the standard has for `wait_until` and `test` only; other libraries take them for
/// several words too.
pub(super) const WAIT_SHORT: Names = &["short", "ushort"];
/// Types of `wait`.
pub(super) const WAIT_OLD: Names = &["short", "int", "long", "longlong"];
/// AND, OR and XOR over teams. The four signed fundamental types stand in one of the standard's two
/// tables only.
pub(super) const REDUCE_BITS: Names = &[
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
    "short",
    "int",
    "long",
    "longlong",
];
/// MAX and MIN over teams.
pub(super) const REDUCE_ORDER: Names = RMA;
/// SUM and PROD over teams.
pub(super) const REDUCE_NUMBERS: Names = &[
    "float",
    "double",
    "longdouble",
    "char",
    "schar",
    "short",
    "int",
    "long",
    "longlong",
    "uchar",
    "ushort",
    "uint",
    "ulong",
    "ulonglong",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "size",
    "ptrdiff",
    "complexd",
    "complexf",
];
/// AND, OR and XOR over active sets.
pub(super) const OLD_BITS: Names = &["short", "int", "long", "longlong"];
/// MAX and MIN over active sets.
pub(super) const OLD_ORDER: Names =
    &["short", "int", "long", "longlong", "float", "double", "longdouble"];
/// SUM and PROD over active sets.
pub(super) const OLD_NUMBERS: Names =
    &["short", "int", "long", "longlong", "float", "double", "longdouble", "complexd", "complexf"];
/// Types of queues that are set, swapped and fetched in addition to [`AMO`].
pub(super) const QUEUE_FLOATS: Names = &["float", "double"];
/// Types of queues that are only moved.
pub(super) const QUEUE_OTHERS: Names = &[
    "longdouble",
    "char",
    "schar",
    "short",
    "uchar",
    "ushort",
    "int8",
    "int16",
    "uint8",
    "uint16",
];
