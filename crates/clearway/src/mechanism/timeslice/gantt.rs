//! Which input sends to whom: whose contribution lands at which builder, in short steps of a window
//! of time.
//!
//! # Model
//! A contribution is shown in the step in which it landed and in those before it that it takes at
//! the rate of a host, unless another one landed there. It is read off what builders have received
//! so far; nothing is written while contributions fly.

use clearway_proto::base::{Nanos, Rank};
use clearway_proto::timeslice::TimesliceNode;
use clearway_sim::Picos;
use clearway_sim::fabric::Fabric;
use clearway_sim::world::{World, WorldEvent};

use super::plan::TimeslicePlan;

/// Inputs that are shown: more rows than a page has lines for.
const INPUTS_MAX: usize = 48;
/// Steps of a gantt: more than a page is wide in cells that can be seen.
const STEPS: u64 = 160;

/// Which input sent to whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Gantt {
    /// Length of a step.
    pub(super) step: Nanos,
    /// By input: the builder at which something landed, step by step.
    pub(super) rows: Vec<Vec<Option<u32>>>,
}

/// Films `world` for `length` from where it is; a contribution takes a `slot`.
pub(super) fn record(
    world: &mut World<TimesliceNode, Fabric>,
    plan: &TimeslicePlan,
    length: Nanos,
    slot: Nanos,
    hear: &mut dyn FnMut(WorldEvent<'_, TimesliceNode>),
) -> Gantt {
    let inputs = (plan.inputs as usize).min(INPUTS_MAX);
    let step = Nanos((length.0 / STEPS).max(1));
    let mut gantt = Gantt { step, rows: vec![Vec::new(); inputs] };
    let mut before = landed(world, plan, inputs);
    let begin = world.now();
    for n in 1..=STEPS {
        world.run_until(begin + Picos::from(step.times(n)), hear);
        let now = landed(world, plan, inputs);
        for (input, row) in gantt.rows.iter_mut().enumerate() {
            let moved =
                (0..now.len()).find(|builder| now[*builder][input] != before[*builder][input]);
            row.push(moved.map(|builder| builder as u32));
        }
        before = now;
    }
    let steps = (slot.0 / step.0).saturating_sub(1) as usize;
    gantt.rows.iter_mut().for_each(|row| extend_backwards(row, steps));
    gantt
}

/// Marks what landed as on its way for `steps` steps before.
fn extend_backwards(row: &mut [Option<u32>], steps: usize) {
    let mut left = 0;
    let mut builder = None;
    for cell in row.iter_mut().rev() {
        match *cell {
            Some(landed) => (builder, left) = (Some(landed), steps),
            None if left > 0 => (*cell, left) = (builder, left - 1),
            None => {}
        }
    }
}

/// Returns, by builder and input, the contributions that have landed.
fn landed(
    world: &mut World<TimesliceNode, Fabric>,
    plan: &TimeslicePlan,
    inputs: usize,
) -> Vec<Vec<u32>> {
    let builders = plan.inputs..plan.inputs + plan.builders;
    let of = |builder| {
        let node = world.engine_mut(Rank(builder));
        let counts =
            node.map(|node| (0..inputs).map(|input| node.landed(input).unwrap_or(0)).collect());
        counts.unwrap_or_else(|| vec![0; inputs])
    };
    builders.map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extend_backwards__covers_what_a_contribution_takes_and_no_other() {
        let mut row = [None, None, None, Some(7), None, Some(8), Some(9), None];
        extend_backwards(&mut row, 2);
        assert_eq!(row, [None, Some(7), Some(7), Some(7), Some(8), Some(8), Some(9), None]);
    }
}
