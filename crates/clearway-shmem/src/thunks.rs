//! `long double`: a type that Rust does not have, moved and computed with by a few instructions.
//!
//! # Model
//! Behind a pointer a `long double` is 16 bytes. By value it travels as no type of Rust does: on
//! x86-64 on the stack, and back in a register of the x87 unit; on aarch64 in a vector register.
//! Four functions of C do that, each a few instructions around a function that takes a pointer.
//! Sums, products and comparisons are those of the x87 unit, or of the compiler's library for
//! numbers of 128 bits.
//!
//! # Source
//! System V ABI, AMD64 supplement, 3.2.3; Procedure Call Standard for the Arm 64-bit Architecture,
//! 6.8.2.

#![allow(unsafe_code)]

use std::arch::naked_asm;

use crate::address::Symmetric;
use crate::context::Context;
use crate::operand::{Operand, ReduceOp};
use crate::rma;
use crate::word::Plain;

/// A `long double` as it lies in memory.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(crate) struct LongDouble([u8; 16]);

// SAFETY: an array of bytes.
unsafe impl Plain for LongDouble {}

impl Operand for LongDouble {
    fn combine(op: ReduceOp, a: Self, b: Self) -> Self {
        match op {
            ReduceOp::Sum => arithmetic::add(a, b),
            ReduceOp::Prod => arithmetic::multiply(a, b),
            ReduceOp::Min if arithmetic::is_less(&b, &a) => b,
            ReduceOp::Max if arithmetic::is_less(&a, &b) => b,
            // The table has no bitwise operation for it.
            ReduceOp::Min | ReduceOp::Max | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => a,
        }
    }
}

/// # Safety
/// `value` points to a `long double`.
unsafe extern "C" fn put(dest: *mut LongDouble, value: *const LongDouble, pe: i32) {
    // SAFETY: the caller, one of the functions below, has it on its stack.
    let value = unsafe { *value };
    rma::p(Context::DEFAULT, Symmetric::new(dest), value, pe)
        .unwrap_or_else(|fault| fault.end("shmem_longdouble_p"));
}

/// # Safety
/// As [`put`].
unsafe extern "C" fn put_in(ctx: usize, dest: *mut LongDouble, value: *const LongDouble, pe: i32) {
    // SAFETY: as in `put`.
    let value = unsafe { *value };
    let done = rma::p(Context::from_raw(ctx), Symmetric::new(dest), value, pe);
    done.unwrap_or_else(|fault| fault.end("shmem_ctx_longdouble_p"));
}

/// # Safety
/// `value` has room for a `long double`.
unsafe extern "C" fn get(source: *const LongDouble, pe: i32, value: *mut LongDouble) {
    let got = rma::g(Context::DEFAULT, Symmetric::new(source), pe);
    // SAFETY: the caller, one of the functions below, has the room on its stack.
    unsafe { *value = got.unwrap_or_else(|fault| fault.end("shmem_longdouble_g")) };
}

/// # Safety
/// As [`get`].
unsafe extern "C" fn get_in(
    ctx: usize,
    source: *const LongDouble,
    pe: i32,
    value: *mut LongDouble,
) {
    let got = rma::g(Context::from_raw(ctx), Symmetric::new(source), pe);
    // SAFETY: as in `get`.
    unsafe { *value = got.unwrap_or_else(|fault| fault.end("shmem_ctx_longdouble_g")) };
}

/// Defines both names of a function of C by its instructions, which call `$to`.
macro_rules! thunk {
    ($name:ident $profiling:ident, $to:path, $($line:literal),*) => {
        thunk!(@one $name, $to, $($line),*);
        thunk!(@one $profiling, $to, $($line),*);
    };
    (@one $name:ident, $to:path, $($line:literal),*) => {
        /// # Safety
        /// The arguments are those of the standard's function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!($($line,)* to = sym $to)
        }
    };
}

/// The value lies behind the return address, the other arguments in registers: the pointer to it
/// becomes the argument in its place.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{get, get_in, naked_asm, put, put_in};

    thunk!(shmem_longdouble_p pshmem_longdouble_p, put, "mov edx, esi", "lea rsi, [rsp + 8]", "jmp {to}");
    thunk!(shmem_ctx_longdouble_p pshmem_ctx_longdouble_p, put_in, "mov ecx, edx", "lea rdx, [rsp + 8]", "jmp {to}");
    thunk!(
        shmem_longdouble_g pshmem_longdouble_g,
        get,
        "sub rsp, 24",
        "mov rdx, rsp",
        "call {to}",
        "fld tbyte ptr [rsp]",
        "add rsp, 24",
        "ret"
    );
    thunk!(
        shmem_ctx_longdouble_g pshmem_ctx_longdouble_g,
        get_in,
        "sub rsp, 24",
        "mov rcx, rsp",
        "call {to}",
        "fld tbyte ptr [rsp]",
        "add rsp, 24",
        "ret"
    );
}

/// The value is in `q0`: it goes to the stack, and the pointer to it becomes an argument.
#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::{get, get_in, naked_asm, put, put_in};

    thunk!(
        shmem_longdouble_p pshmem_longdouble_p,
        put,
        "stp x29, x30, [sp, #-32]!",
        "str q0, [sp, #16]",
        "mov w2, w1",
        "add x1, sp, #16",
        "bl {to}",
        "ldp x29, x30, [sp], #32",
        "ret"
    );
    thunk!(
        shmem_ctx_longdouble_p pshmem_ctx_longdouble_p,
        put_in,
        "stp x29, x30, [sp, #-32]!",
        "str q0, [sp, #16]",
        "mov w3, w2",
        "add x2, sp, #16",
        "bl {to}",
        "ldp x29, x30, [sp], #32",
        "ret"
    );
    thunk!(
        shmem_longdouble_g pshmem_longdouble_g,
        get,
        "stp x29, x30, [sp, #-32]!",
        "add x2, sp, #16",
        "bl {to}",
        "ldr q0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret"
    );
    thunk!(
        shmem_ctx_longdouble_g pshmem_ctx_longdouble_g,
        get_in,
        "stp x29, x30, [sp, #-32]!",
        "add x3, sp, #16",
        "bl {to}",
        "ldr q0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret"
    );
}

/// Numbers of 80 bits, by the x87 unit.
#[cfg(target_arch = "x86_64")]
mod arithmetic {
    use std::arch::asm;

    use super::LongDouble;

    /// Runs `$line` with `b` on top of `a` in the unit, and gives what is on top after it.
    macro_rules! binary {
        ($name:ident, $line:literal) => {
            pub(super) fn $name(a: LongDouble, b: LongDouble) -> LongDouble {
                let mut result = LongDouble([0; 16]);
                // SAFETY: the instructions read ten bytes of each operand and write ten of the
                // result, which have sixteen; the unit's registers are free and left free, as its
                // convention demands around a call.
                unsafe {
                    asm!(
                        "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", $line, "fstp tbyte ptr [{result}]",
                        a = in(reg) &a, b = in(reg) &b, result = in(reg) &mut result,
                        out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                        out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                        options(nostack)
                    );
                }
                result
            }
        };
    }

    binary!(add, "faddp st(1), st");
    binary!(multiply, "fmulp st(1), st");

    /// Whether `a` is less than `b`; neither is what is no number.
    pub(super) fn is_less(a: &LongDouble, b: &LongDouble) -> bool {
        let above: u8;
        // SAFETY: as in `binary`, without a result in memory.
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", "fucomip st, st(1)", "fstp st(0)", "seta {above}",
                a = in(reg) a, b = in(reg) b, above = out(reg_byte) above,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack)
            );
        }
        above != 0
    }
}

/// Numbers of 128 bits, by the functions that a compiler of C calls for them.
#[cfg(target_arch = "aarch64")]
mod arithmetic {
    use super::{LongDouble, naked_asm};

    /// Loads both operands, calls `$to`, and leaves the answer where the first one was.
    macro_rules! binary {
        ($name:ident, $to:literal) => {
            #[unsafe(naked)]
            unsafe extern "C" fn $name(a: *mut LongDouble, b: *const LongDouble) {
                naked_asm!(
                    "stp x29, x30, [sp, #-32]!",
                    "str x0, [sp, #16]",
                    "ldr q0, [x0]",
                    "ldr q1, [x1]",
                    concat!("bl ", $to),
                    "ldr x0, [sp, #16]",
                    "str q0, [x0]",
                    "ldp x29, x30, [sp], #32",
                    "ret"
                )
            }
        };
    }

    binary!(add_to, "__addtf3");
    binary!(multiply_by, "__multf3");

    /// Negative when the first operand is less; positive also for what is no number.
    #[unsafe(naked)]
    unsafe extern "C" fn compare(a: *const LongDouble, b: *const LongDouble) -> i32 {
        naked_asm!("ldr q0, [x0]", "ldr q1, [x1]", "b __lttf2")
    }

    pub(super) fn add(mut a: LongDouble, b: LongDouble) -> LongDouble {
        // SAFETY: both point to a number.
        unsafe { add_to(&mut a, &b) };
        a
    }

    pub(super) fn multiply(mut a: LongDouble, b: LongDouble) -> LongDouble {
        // SAFETY: both point to a number.
        unsafe { multiply_by(&mut a, &b) };
        a
    }

    pub(super) fn is_less(a: &LongDouble, b: &LongDouble) -> bool {
        // SAFETY: both point to a number.
        unsafe { compare(a, b) < 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small number as the processor writes it.
    #[cfg(target_arch = "x86_64")]
    fn number(value: f64) -> LongDouble {
        let mut number = LongDouble([0; 16]);
        // SAFETY: one register of the unit is loaded and stored again.
        unsafe {
            std::arch::asm!("fld qword ptr [{a}]", "fstp tbyte ptr [{b}]", a = in(reg) &value, b = in(reg) &mut number,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _, options(nostack));
        }
        number
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn combine__computes_as_the_processor_does() {
        let of = |op, a, b| LongDouble::combine(op, number(a), number(b)).0;
        assert_eq!(of(ReduceOp::Sum, 1.5, -4.0), number(-2.5).0);
        assert_eq!(of(ReduceOp::Prod, 1.5, -4.0), number(-6.0).0);
        assert_eq!(
            (of(ReduceOp::Min, 1.5, -4.0), of(ReduceOp::Min, -4.0, 1.5)),
            (number(-4.0).0, number(-4.0).0)
        );
        assert_eq!(
            (of(ReduceOp::Max, 1.5, -4.0), of(ReduceOp::Max, -4.0, 1.5)),
            (number(1.5).0, number(1.5).0)
        );
    }
}
