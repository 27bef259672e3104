//! Reports mistakes of a program, each in one sentence that names the function, the argument and its
//! value.
//!
//! # Model
//! Every operation returns `Result<_, Fault>`. A fault is a pointer, so that a result fits into a
//! register and the check costs a compare. The C function that gets a fault adds its own name and ends
//! the job with [`Fault::end`], because a C program cannot catch it.

use thiserror::Error;

use crate::job;

/// The exit status of a job that ends because of a program's mistake: that of `EX_SOFTWARE` in
/// `sysexits.h`.
pub(crate) const STATUS: i32 = 70;

/// An argument or a call that the standard does not allow.
#[derive(Debug)]
pub struct Fault(Box<Wrong>);

/// What is wrong.
#[derive(Debug, Error)]
pub(crate) enum Wrong {
    #[error("was called before shmem_init or after shmem_finalize")]
    NotInitialized,
    #[error(
        "`{argument}` is {address:#x}: the {bytes} bytes from there are not in symmetric memory ({segments})"
    )]
    Outside { argument: &'static str, address: usize, bytes: usize, segments: String },
    #[error(
        "`{argument}` is {address:#x}, which is no multiple of {align}; align objects of this type to their size"
    )]
    Unaligned { argument: &'static str, address: usize, align: usize },
    #[error("`pe` is {pe}; PEs of this context or team are 0 to {}", .pes - 1)]
    Pe { pe: i32, pes: usize },
    #[error("`{argument}` is {value}; {works}")]
    Value { argument: &'static str, value: i64, works: &'static str },
    #[error("`ptr` is {0:#x}; give an address that shmem_malloc returned and that was not freed")]
    Block(usize),
    #[error("`ctx` is {0:#x}, which is no context; it may have been destroyed")]
    Context(usize),
    #[error("`team` is {0:#x}, which is no team of this PE; it may have been destroyed")]
    Team(usize),
    #[error("{0}")]
    Failed(String),
}

impl From<Wrong> for Fault {
    #[cold]
    fn from(wrong: Wrong) -> Self {
        Self(Box::new(wrong))
    }
}

impl Fault {
    /// Creates the fault of a wrong value; `works` says what to use instead.
    #[cold]
    pub(crate) fn value(argument: &'static str, value: i64, works: &'static str) -> Self {
        Wrong::Value { argument, value, works }.into()
    }

    /// Returns the sentence, without the name of the function.
    pub fn sentence(&self) -> String {
        self.0.to_string()
    }

    /// Prints the sentence with the name of `function`, and ends the job.
    #[cold]
    pub fn end(self, function: &'static str) -> ! {
        let sentence = match *self.0 {
            Wrong::Failed(sentence) => format!("{function}: {sentence}"),
            wrong => format!("{function}: {wrong}"),
        };
        job::end_with(STATUS, &sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence__says_argument_and_value() {
        let fault = Fault::value("cmp", 9, "use SHMEM_CMP_EQ to SHMEM_CMP_LE");
        assert_eq!(fault.sentence(), "`cmp` is 9; use SHMEM_CMP_EQ to SHMEM_CMP_LE");
        assert_eq!(size_of::<Result<(), Fault>>(), size_of::<usize>());
    }
}
