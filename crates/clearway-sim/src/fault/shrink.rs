//! Makes a plan smaller while something still fails: fewer faults first, then shorter ones.
//!
//! # Source
//! Zeller, Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): drop large
//! pieces first, then small ones.
//!
//! # Invariants
//! I1. The plan returned fails, if the plan given did; no single fault can be left out of it unless
//!     the tries ran out.

use super::plan::{Fault, FaultPlan};
use crate::time::Picos;

/// Halvings of one fault's length at most: from milliseconds to microseconds.
const HALVINGS_MAX: u32 = 10;

/// Returns the smallest plan found for which `fails` says yes, asking at most `tries` times;
/// `tries` is what is left of them.
pub fn shrink(
    plan: &FaultPlan,
    tries: &mut u32,
    fails: &mut dyn FnMut(&FaultPlan) -> bool,
) -> FaultPlan {
    let mut ask = |faults: &[Fault]| {
        if *tries == 0 {
            return false;
        }
        *tries -= 1;
        fails(&FaultPlan::new(faults.to_vec()))
    };
    let mut faults = plan.faults.clone();
    let mut piece = faults.len().div_ceil(2).max(1);
    while !faults.is_empty() {
        let mut at = 0;
        let before = faults.len();
        while at < faults.len() {
            let mut fewer = faults.clone();
            fewer.drain(at..(at + piece).min(faults.len()));
            if ask(&fewer) {
                faults = fewer;
            } else {
                at += piece;
            }
        }
        if piece == 1 && faults.len() == before {
            break;
        }
        piece = (piece / 2).max(1);
    }
    for number in 0..faults.len() {
        for _ in 0..HALVINGS_MAX {
            let mut shorter = faults.clone();
            let it = &mut shorter[number];
            it.until = it.at + Picos(((it.until - it.at).0 / 2).max(1));
            if it.until == faults[number].until || !ask(&shorter) {
                break;
            }
            faults = shorter;
        }
    }
    FaultPlan::new(faults)
}
