//! What processes of an application send each other in one iteration.
//!
//! # Model
//! An iteration is a list of steps, the same number for all. In a step a process posts its sends,
//! and goes on when its messages of that step are there and its own long ones have ended. Messages of
//! later steps may come early.
//!
//! # Source
//! Latency and bandwidth: OSU micro-benchmarks. CG: `cg.f` of NPB 3, which is a square of processes
//! here: `l2npcols` exchanges of a row's part of the vector, one with the transposed process, and two
//! sums of one number by recursive doubling; class D has 1,500,000 rows. AWP-ODC: Cui et al. (SC10): two
//! layers of a face, of three velocities and then of six stresses, with up to six neighbours; their
//! largest run had 436 billion points on 223,074 processes, which is a cube of 125 each.

use clearway_proto::base::Rank;

/// Bytes of the answer to a window.
const ANSWER: u32 = 4;
/// Rows of CG's matrix, class D.
const CG_ROWS: u32 = 1_500_000;
/// Bytes of a number in double and single precision.
const DOUBLE: u32 = 8;
const SINGLE: u32 = 4;
/// Points of an edge of a process's part of AWP-ODC.
const AWP_EDGE: u32 = 125;
/// Layers of a face that neighbours need.
const AWP_LAYERS: u32 = 2;
/// Velocities, and stresses.
const AWP_FIELDS: [u32; 2] = [3, 6];

/// What one process does in a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// To whom, and how much.
    pub(super) sends: Vec<(Rank, u32)>,
    /// Messages of this step that it waits for.
    pub(super) waits: u32,
}

/// The steps of every process of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApplicationPattern {
    pub(super) processes: Vec<(Rank, Vec<Step>)>,
}

impl ApplicationPattern {
    /// Creates the pattern of `ranks` in which process `i` sends in step `s` what `sends(s, i)` says,
    /// by indices of processes.
    fn new(ranks: &[Rank], steps: u32, sends: impl Fn(u32, u32) -> Vec<(u32, u32)>) -> Self {
        let mut processes: Vec<(Rank, Vec<Step>)> =
            ranks.iter().map(|rank| (*rank, vec![Step::default(); steps as usize])).collect();
        for step in 0..steps {
            for from in 0..ranks.len() as u32 {
                for (to, bytes) in sends(step, from) {
                    let (rank, theirs) = &mut processes[to as usize];
                    theirs[step as usize].waits += 1;
                    let to = *rank;
                    processes[from as usize].1[step as usize].sends.push((to, bytes));
                }
            }
        }
        Self { processes }
    }

    /// Creates a question and an answer of `bytes`.
    pub(super) fn round_trip(ranks: [Rank; 2], bytes: u32) -> Self {
        Self::new(
            &ranks,
            2,
            |step, from| if step == from { vec![(1 - from, bytes)] } else { vec![] },
        )
    }

    /// Creates a window of `count` messages of `bytes`, and a short answer.
    pub(super) fn window(ranks: [Rank; 2], bytes: u32, count: u32) -> Self {
        Self::new(&ranks, 2, |step, from| match (step, from) {
            (0, 0) => vec![(1, bytes); count as usize],
            (1, 1) => vec![(0, ANSWER)],
            _ => vec![],
        })
    }

    /// Creates an exchange of all with all, everything at once.
    pub(super) fn scattered(ranks: &[Rank], bytes: u32) -> Self {
        let count = ranks.len() as u32;
        // Each begins with the process behind it.
        Self::new(ranks, 1, |_, from| {
            (1..count).map(|step| ((from + step) % count, bytes)).collect()
        })
    }

    /// Creates an exchange of all with all in turn, with one other at a time.
    pub(super) fn turns(ranks: &[Rank], bytes: u32) -> Self {
        let count = ranks.len() as u32;
        Self::new(ranks, count - 1, |step, from| vec![((from + step + 1) % count, bytes)])
    }

    /// Creates one iteration of CG's inner loop; the number of processes is a square of a power of
    /// two.
    pub(super) fn cg(ranks: &[Rank]) -> Self {
        let columns = (ranks.len() as u32).isqrt();
        let exchanges = columns.trailing_zeros();
        let part = CG_ROWS / columns * DOUBLE;
        // In exchange `i` the partner is half a block of columns away. Sums begin with all columns,
        // vectors end with them.
        let partner = |me: u32, exchange: u32| {
            let block = columns >> exchange;
            let (row, column) = (me / columns, me % columns);
            row * columns + (column + block / 2) % block + column / block * block
        };
        Self::new(ranks, 3 * exchanges + 1, |step, me| {
            let transposed = me % columns * columns + me / columns;
            match step {
                step if step < exchanges => vec![(partner(me, exchanges - 1 - step), part)],
                step if step == exchanges && transposed == me => vec![],
                step if step == exchanges => vec![(transposed, part)],
                step => vec![(partner(me, (step - exchanges - 1) % exchanges), DOUBLE)],
            }
        })
    }

    /// Creates one time step of AWP-ODC; the number of processes is a cube.
    pub(super) fn awp_odc(ranks: &[Rank]) -> Self {
        let count = ranks.len() as u32;
        let edge = (1..=count).find(|edge| edge.pow(3) >= count).unwrap_or(1);
        let face = AWP_EDGE * AWP_EDGE * AWP_LAYERS * SINGLE;
        Self::new(ranks, AWP_FIELDS.len() as u32, |step, me| {
            let fields = AWP_FIELDS[step as usize];
            let mut sends = Vec::new();
            for stride in [1, edge, edge * edge] {
                let place = me / stride % edge;
                let near =
                    [(place > 0).then(|| me - stride), (place + 1 < edge).then(|| me + stride)];
                for to in near.into_iter().flatten() {
                    sends.extend((0..fields).map(|_| (to, face)));
                }
            }
            sends
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(count: u32) -> Vec<Rank> {
        (0..count).map(Rank).collect()
    }

    /// Bytes that a process sends in an iteration.
    fn sent(pattern: &ApplicationPattern, process: usize) -> u64 {
        let steps = &pattern.processes[process].1;
        steps.iter().flat_map(|step| &step.sends).map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    #[test]
    fn cg__partners_exchange_with_each_other_in_every_step() {
        let pattern = ApplicationPattern::cg(&ranks(64));
        assert_eq!(pattern.processes[0].1.len(), 10);
        for (rank, steps) in &pattern.processes {
            for (at, step) in steps.iter().enumerate() {
                assert_eq!(step.sends.len(), step.waits as usize);
                for (to, bytes) in &step.sends {
                    let back = &pattern.processes[to.0 as usize].1[at].sends;
                    assert_eq!(back.as_slice(), [(*rank, *bytes)], "step {at}");
                }
            }
        }
        // Three exchanges of a row, one with the transposed process, six sums of one number.
        assert_eq!(sent(&pattern, 1), 4 * 1_500_000 + 6 * 8);
        assert_eq!(sent(&pattern, 9), 3 * 1_500_000 + 6 * 8, "on the diagonal");
    }

    #[test]
    fn awp_odc__corners_have_three_neighbours_and_inner_ones_six() {
        let pattern = ApplicationPattern::awp_odc(&ranks(64));
        let faces = |process| sent(&pattern, process) / (125 * 125 * 2 * 4) / 9;
        assert_eq!((faces(0), faces(1), faces(21)), (3, 4, 6));
    }

    #[test]
    fn new__everybody_waits_for_what_others_send() {
        let all = ranks(5);
        for pattern in [
            ApplicationPattern::scattered(&all, 8),
            ApplicationPattern::turns(&all, 8),
            ApplicationPattern::round_trip([Rank(0), Rank(7)], 8),
            ApplicationPattern::window([Rank(0), Rank(7)], 8, 3),
        ] {
            let steps = || pattern.processes.iter().flat_map(|(_, steps)| steps);
            let sends: usize = steps().map(|step| step.sends.len()).sum();
            let waits: u32 = steps().map(|step| step.waits).sum();
            assert_eq!(sends, waits as usize);
        }
        assert_eq!(sent(&ApplicationPattern::turns(&all, 8), 3), 32);
    }
}
