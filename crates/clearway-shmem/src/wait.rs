//! Waits for, and tests, words that other PEs change: one, all, any or some of them.
//!
//! # Model
//! A wait polls the words and pauses between polls as
//! [`WaitPolicy`](clearway_runtime::near::WaitPolicy) decides, because a PE that stores into this
//! PE's memory does not wake waiting threads. After the wait returns, this PE sees all stores that
//! precede the change of the word.
//!
//! A program may only test in a loop while it waits. So tests yield the processor now and then,
//! satisfied or not.
//!
//! `any` and `some` start after the word that they found last, so that each satisfied word has its
//! turn.
//!
//! # Source
//! OpenSHMEM 1.6, "Point-To-Point Synchronization Routines".

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::address::{Caller, Symmetric};
use crate::constants::{CMP_EQ, CMP_GE, CMP_GT, CMP_LE, CMP_LT, CMP_NE};
use crate::fault::Fault;
use crate::job::{self, Job};
use crate::queue;
use crate::word::Integer;

/// A comparison of the program.
#[derive(Clone, Copy)]
enum Comparison {
    Equal,
    Other,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

impl Comparison {
    fn parse(number: i32) -> Result<Self, Fault> {
        Ok(match number {
            CMP_EQ => Self::Equal,
            CMP_NE => Self::Other,
            CMP_GT => Self::Greater,
            CMP_GE => Self::GreaterEqual,
            CMP_LT => Self::Less,
            CMP_LE => Self::LessEqual,
            other => {
                return Err(Fault::value(
                    "cmp",
                    other.into(),
                    "use one of SHMEM_CMP_EQ to SHMEM_CMP_LE",
                ));
            }
        })
    }

    #[inline]
    fn holds<T: Integer>(self, found: T, value: T) -> bool {
        match self {
            Self::Equal => found == value,
            Self::Other => found != value,
            Self::Greater => found > value,
            Self::GreaterEqual => found >= value,
            Self::Less => found < value,
            Self::LessEqual => found <= value,
        }
    }
}

/// Waits until the comparison of this PE's word with `value` holds (`shmem_wait_until`).
///
/// # Errors
/// The address is no aligned word of symmetric memory, or there is no such comparison.
#[inline]
pub fn until<T: Integer>(word: Symmetric, comparison: i32, value: T) -> Result<(), Fault> {
    until_value(word, comparison, value).map(drop)
}

/// Waits as [`until`], and returns the value that ended the wait.
#[inline]
pub(crate) fn until_value<T: Integer>(
    word: Symmetric,
    comparison: i32,
    value: T,
) -> Result<T, Fault> {
    let job = job::get()?;
    let word = job.own_word::<T>(word, "ivar")?;
    let comparison = Comparison::parse(comparison)?;
    let mut found = T::load(word, Ordering::Acquire);
    if !comparison.holds(found, value) {
        queue::finish(job)?;
        job.wait(|| {
            found = T::load(word, Ordering::Acquire);
            comparison.holds(found, value)
        });
    }
    Ok(found)
}

/// Returns 1 if the comparison of this PE's word with `value` holds, otherwise 0 (`shmem_test`).
///
/// # Errors
/// As [`until`].
#[inline]
pub fn test<T: Integer>(word: Symmetric, comparison: i32, value: T) -> Result<i32, Fault> {
    let job = job::get()?;
    let word = job.own_word::<T>(word, "ivar")?;
    queue::finish(job)?;
    job.ask();
    Ok(i32::from(Comparison::parse(comparison)?.holds(T::load(word, Ordering::Acquire), value)))
}

/// The values with which words are compared.
#[derive(Clone, Copy)]
enum Values<T> {
    One(T),
    Each(Caller),
}

/// Several words of this PE, which of them count, and the values to compare with.
struct Words<T> {
    job: &'static Job,
    first: Symmetric,
    count: usize,
    status: Caller,
    comparison: Comparison,
    values: Values<T>,
}

thread_local! {
    /// The index at which the next search of several words begins.
    static NEXT: Cell<usize> = const { Cell::new(0) };
}

impl<T: Integer> Words<T> {
    fn new(
        first: Symmetric,
        count: usize,
        status: Caller,
        comparison: i32,
        values: Values<T>,
    ) -> Result<Self, Fault> {
        let job = job::get()?;
        queue::finish(job)?;
        if count > 0 {
            // Checks the first and the last word, and with them all between.
            job.own_word::<T>(first, "ivars")?;
            job.own_word::<T>(first.plus((count - 1).saturating_mul(size_of::<T>())), "ivars")?;
        }
        Ok(Self { job, first, count, status, comparison: Comparison::parse(comparison)?, values })
    }

    /// Counts a test.
    fn asked(&self) -> &Self {
        self.job.ask();
        self
    }

    fn counts(&self, index: usize) -> bool {
        self.status.is_null() || self.status.read::<i32>(index) == 0
    }

    fn holds(&self, index: usize) -> bool {
        let word = self.job.own_word::<T>(self.first.plus(index * size_of::<T>()), "ivars");
        let value = match self.values {
            Values::One(value) => value,
            Values::Each(values) => values.read(index),
        };
        word.is_ok_and(|word| self.comparison.holds(T::load(word, Ordering::Acquire), value))
    }

    /// Returns the words that count, beginning after the one found last.
    fn in_turn(&self) -> impl Iterator<Item = usize> + '_ {
        let begin = NEXT.get() % self.count.max(1);
        (begin..self.count).chain(0..begin).filter(|index| self.counts(*index))
    }

    fn are_none(&self) -> bool {
        !(0..self.count).any(|index| self.counts(index))
    }

    fn any(&self) -> Option<usize> {
        let found = self.in_turn().find(|index| self.holds(*index))?;
        NEXT.set(found + 1);
        Some(found)
    }

    fn some(&self, indices: Caller) -> usize {
        let mut found = 0;
        for index in self.in_turn().filter(|index| self.holds(*index)) {
            indices.write(found, index);
            found += 1;
        }
        found
    }

    fn until_all(&self) {
        for index in (0..self.count).filter(|index| self.counts(*index)) {
            if !self.holds(index) {
                self.job.wait(|| self.holds(index));
            }
        }
    }

    fn until_any(&self) -> usize {
        if self.are_none() {
            return usize::MAX;
        }
        let mut found = None;
        self.job.wait(|| {
            found = self.any();
            found.is_some()
        });
        found.unwrap_or(usize::MAX)
    }

    fn until_some(&self, indices: Caller) -> usize {
        if self.are_none() {
            return 0;
        }
        let mut found = 0;
        self.job.wait(|| {
            found = self.some(indices);
            found > 0
        });
        found
    }

    fn test_all(&self) -> i32 {
        i32::from(
            (0..self.count).filter(|index| self.counts(*index)).all(|index| self.holds(index)),
        )
    }
}

macro_rules! several {
    ($($name:ident, $vector:ident, ($($extra:ident),*), $gives:ty, $says:literal, |$words:ident| $run:expr);*) => { $(
        #[doc = concat!("Compares each word with one value (`shmem_", $says, "`).")]
        ///
        /// # Errors
        /// As [`until`].
        pub fn $name<T: Integer>(
            words: Symmetric,
            count: usize,
            $($extra: Caller,)*
            status: Caller,
            comparison: i32,
            value: T,
        ) -> Result<$gives, Fault> {
            let $words = Words::new(words, count, status, comparison, Values::One(value))?;
            Ok($run)
        }

        #[doc = concat!("Compares each word with a value of its own (`shmem_", $says, "_vector`).")]
        ///
        /// # Errors
        /// As [`until`].
        pub fn $vector<T: Integer>(
            words: Symmetric,
            count: usize,
            $($extra: Caller,)*
            status: Caller,
            comparison: i32,
            values: Caller,
        ) -> Result<$gives, Fault> {
            let $words = Words::<T>::new(words, count, status, comparison, Values::Each(values))?;
            Ok($run)
        }
    )* };
}

several!(until_all, until_all_vector, (), (), "wait_until_all", |words| words.until_all();
    until_any, until_any_vector, (), usize, "wait_until_any", |words| words.until_any();
    until_some, until_some_vector, (indices), usize, "wait_until_some", |words| words.until_some(indices);
    test_all, test_all_vector, (), i32, "test_all", |words| words.asked().test_all();
    test_any, test_any_vector, (), usize, "test_any", |words| words.asked().any().unwrap_or(usize::MAX);
    test_some, test_some_vector, (indices), usize, "test_some", |words| words.asked().some(indices));
