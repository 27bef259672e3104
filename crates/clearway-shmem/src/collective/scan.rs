//! Computes prefix sums of a team: member `i` gets the sum over members 0 to `i`, or to `i - 1`.
//!
//! # Model
//! After a first step every source is ready. Member `i` adds the sources up to its own in the order of
//! member numbers. After a second step all reads are done, and it writes `dest`, which may be
//! `source`. Up to 56 bytes are exchanged in one step instead.
//!
//! # Source
//! OpenSHMEM 1.6, "shmem_sum_inscan, shmem_sum_exscan".

use super::{SMALL, Together, on};
use crate::address::{Caller, Symmetric};
use crate::fault::Fault;
use crate::operand::{Operand, ReduceOp, combine_all};
use crate::team::Team;

/// Whether a member's own elements count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Counts,
    Waits,
}

impl Together<'_> {
    fn scan<T: Operand>(
        &self,
        dest: Symmetric,
        source: Symmetric,
        count: usize,
        own_elements: Own,
    ) -> Result<(), Fault> {
        let bytes = count.saturating_mul(size_of::<T>());
        self.expect_same("xscan", [bytes as u64, u64::from(own_elements == Own::Counts)])?;
        let into = self.own(dest, bytes, "dest")?;
        let own = self.own(source, bytes, "source")?;
        self.expect_apart((dest, bytes), (source, bytes))?;
        let summed = self.all.me() + usize::from(own_elements == Own::Counts);
        let zero = Caller::from_slice(&[0u64; 2]).read::<T>(0);
        let mut result = vec![zero; count];
        let mut add = |index: usize, elements: Caller| match index {
            0 => (0..count).for_each(|at| result[at] = elements.read(at)),
            _ => combine_all(ReduceOp::Sum, &mut result, elements),
        };
        if bytes <= SMALL {
            self.tell(own, bytes, |index, words| {
                if index < summed {
                    add(index, words);
                }
            });
        } else {
            self.wait();
            let mut copy = Vec::new();
            for index in 0..summed {
                if let Some(elements) = self.elements(index, source, bytes, &mut copy)? {
                    add(index, elements);
                }
            }
            self.finish();
        }
        into.put(Caller::from_slice(&result), bytes);
        Ok(())
    }
}

/// Sums the elements of the members up to and with this one (`shmem_sum_inscan`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn sum_inscan<T: Operand>(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    count: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.scan::<T>(dest, source, count, Own::Counts))
}

/// Sums the elements of the members before this one, zero at the first (`shmem_sum_exscan`).
///
/// # Errors
/// Not so much symmetric memory.
pub fn sum_exscan<T: Operand>(
    team: Team,
    dest: Symmetric,
    source: Symmetric,
    count: usize,
) -> Result<i32, Fault> {
    on(team, |all| all.scan::<T>(dest, source, count, Own::Waits))
}
