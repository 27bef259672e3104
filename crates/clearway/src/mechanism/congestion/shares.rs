//! Coordinates the class share test: one sender for each class fills one port, and the port's bytes
//! are counted by class.
//!
//! # Model
//! A class's share is its part of all bytes that arrived at the receiver in the measured window. It
//! is configured as `weight / sum of the weights of all classes that send`, on weighted queues.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clearway_proto::base::{BitsPerSec, Bytes, Class, RandomKey, Rank};
use clearway_proto::congestion::{Flow, FlowStyle, LinkId, LoadKind, LoadTask};
use clearway_proto::stats::{Estimate, jain};

use super::evidence;
use super::names::{CLASS_SHARE, CLASS_SHARE_CONFIGURED};
use super::windows::{Grid, Windows};
use crate::mechanism::congestion::SharesSection;
use crate::mechanism::congestion::phases::{
    PhasePlan, PhaseResult, PhaseRole, PhaseRunner, PhaseTraces,
};
use crate::report::model::{ClassShare, ExtendedReal, Figure, Labels, Report, labels};
use crate::run::venue::HostNoise;
use crate::run::{RemainingTime, RunSpec};

/// Bytes of one message: an Ethernet frame's worth, so that every class queues packets of one size.
const MESSAGE: Bytes = Bytes(1300);
/// Replicates of the bootstrap over slices, as in `stats`.
const RESAMPLES: usize = 1000;

/// Runs `test` and writes what it shows into `report`.
pub(crate) fn run(
    test: &SharesSection,
    order: &RunSpec<'_>,
    stage: &mut PhaseRunner<'_>,
    report: &mut Report,
) -> Result<()> {
    let layout = order.scenario.layout().map_err(|why| anyhow!(why))?;
    let port = layout.rate(LinkId::ToHost(test.senders().0));
    let grid = Grid::new(&order.scenario.fabric, test.slice);
    let windows = Windows::new(grid, grid.slice, test.measured.0);
    let planned = (stage.facts().hosts == HostNoise::Real).then_some(Duration::from_secs(1));
    let each = (windows.length() + grid.drain).as_secs_f64();
    let remaining = RemainingTime::begin("queue", vec![each; test.queues.len()], planned);
    for (number, queue) in test.queues.iter().enumerate() {
        stage.arm(queue)?;
        remaining.part(queue);
        let part = |rank| PhaseRole { victim: None, loads: loads(test, port, &windows, rank) };
        let phase_result = stage.phase(&PhasePlan {
            traces: PhaseTraces::Kept,
            windows: &windows,
            part: &part,
            what: format!("{queue}: all classes at once"),
            companion: None,
        })?;
        let seen = MeasuredShares {
            test,
            order,
            queue,
            windows: &windows,
            port,
            phase_result: &phase_result,
        };
        seen.summarise(report);
        let mut partial = report.clone();
        stage.close(&mut partial);
        order.complete.cells(partial, [number + 1, test.queues.len()]);
    }
    stage.conclude(report);
    Ok(())
}

fn loads(test: &SharesSection, port: BitsPerSec, windows: &Windows, rank: Rank) -> Vec<LoadTask> {
    let (receiver, senders) = test.senders();
    let Some((_, class)) = senders.into_iter().find(|(sender, _)| *sender == rank) else {
        return Vec::new();
    };
    let rate = port.percent(test.offered_percent);
    let flow = Flow {
        targets: vec![receiver],
        style: FlowStyle::Push,
        rate,
        message: MESSAGE,
        window: None,
        burst: None,
    };
    let [from, until] = [windows.load.from, windows.load.until].map(|at| windows.grid.slices(at));
    vec![LoadTask { kind: LoadKind::Flows(vec![flow]), class, from, until }]
}

/// Returns the link bytes of each class in each slice of the measured window, at the receiver.
fn arrivals(
    test: &SharesSection,
    windows: &Windows,
    phase_result: &PhaseResult,
) -> Vec<BTreeMap<Class, u64>> {
    let (receiver, _) = test.senders();
    let mut slices =
        vec![BTreeMap::new(); (windows.congested.until - windows.congested.from) as usize];
    for series in &phase_result.records[receiver.index()].load {
        for entry in series.slices.iter().filter(|entry| windows.congested.contains(entry.slice)) {
            *slices[(entry.slice - windows.congested.from) as usize]
                .entry(series.class)
                .or_default() += entry.link;
        }
    }
    slices
}

fn share(slices: &[&BTreeMap<Class, u64>], class: Class) -> f64 {
    let total: u64 = slices.iter().flat_map(|slice| slice.values()).sum();
    let own: u64 = slices.iter().filter_map(|slice| slice.get(&class)).sum();
    own as f64 / (total as f64).max(1.0)
}

/// Returns the share of `class` with its bootstrap interval over slices.
fn estimate(slices: &[BTreeMap<Class, u64>], class: Class, key: RandomKey) -> Estimate {
    let mut stream = key.purpose(class.name()).stream();
    let mut replicates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<_> = slices
                .iter()
                .map(|_| &slices[stream.below(slices.len() as u64) as usize])
                .collect();
            share(&drawn, class)
        })
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let all: Vec<_> = slices.iter().collect();
    let beyond = RESAMPLES / 40;
    Estimate::new(
        share(&all, class),
        [replicates[beyond], replicates[RESAMPLES - 1 - beyond]],
        slices.len() as u64,
    )
}

/// What one queue showed.
struct MeasuredShares<'a> {
    test: &'a SharesSection,
    order: &'a RunSpec<'a>,
    queue: &'a str,
    windows: &'a Windows,
    port: BitsPerSec,
    phase_result: &'a PhaseResult,
}

impl MeasuredShares<'_> {
    fn summarise(&self, report: &mut Report) {
        let Self { test, queue, .. } = *self;
        let slices = arrivals(test, self.windows, self.phase_result);
        let marks = evidence::marks(&self.phase_result.records);
        let gaps = evidence::longest_gaps(&self.phase_result.records);
        let key = RandomKey::new(self.order.scenario.seed).purpose("shares").purpose(queue);
        for class in &test.classes {
            let reached = estimate(&slices, *class, key);
            let configured = self.configured(*class);
            let named =
                |figure: Figure| figure.with(labels::QUEUE, queue).with("class", class.name());
            let source = format!("bootstrap over slices of {}, 95 %", test.slice.0);
            report.figures.push(named(Figure::estimate(CLASS_SHARE, "", &reached, 1.0, &source)));
            if let Some(configured) = configured {
                let value = ExtendedReal::finite(configured);
                let source = "weight over the sum of the sending classes' weights";
                report.figures.push(named(Figure::counted(
                    CLASS_SHARE_CONFIGURED,
                    "",
                    value,
                    0,
                    source,
                )));
            }
            let mut row = ClassShare::from_marks(*class, &marks);
            row.labels = Labels::from([(labels::QUEUE.to_owned(), queue.to_owned())]);
            row.configured = configured.map(|share| ExtendedReal::finite(share * 100.0));
            row.reached = Some(ExtendedReal::finite(reached.value * 100.0));
            row.starved_ms = gaps.get(class).map(|gap| ExtendedReal::finite(gap.0 as f64 / 1e6));
            report.shares.push(row);
        }
        self.totals(&slices, report);
    }

    /// Returns the weight of `class`, where this queue has weights.
    fn weight(&self, class: Class) -> Option<u32> {
        Some(self.order.scenario.fabric.weights(self.queue)?[class.index()])
    }

    /// Returns the part that `class` should get, where that is configured.
    fn configured(&self, class: Class) -> Option<f64> {
        let sum: u32 = self.test.classes.iter().filter_map(|class| self.weight(*class)).sum();
        Some(f64::from(self.weight(class)?) / f64::from(sum))
    }

    /// Adds what the port carried in all, and how evenly weights were honoured.
    fn totals(&self, slices: &[BTreeMap<Class, u64>], report: &mut Report) {
        let count = slices.len() as u64;
        let bytes: u64 = slices.iter().flat_map(BTreeMap::values).sum();
        let carried = self.windows.grid.megabits(bytes / count.max(1));
        let part = ExtendedReal::finite(carried / (self.port.0 as f64 / 1e6) * 100.0);
        let figure = Figure::counted(
            "port_use",
            "%",
            part,
            count,
            "bytes that arrived over the port's rate",
        );
        report.figures.push(figure.with(labels::QUEUE, self.queue));
        let own = |class: &Class| slices.iter().filter_map(|slice| slice.get(class)).sum::<u64>();
        let classes = self.test.classes.iter();
        let weighted: Option<Vec<u64>> = classes
            .map(|class| Some(own(class) / u64::from(self.weight(*class)?.max(1))))
            .collect();
        if let Some(index) = weighted.and_then(|weighted| jain(&weighted)) {
            let source = "bytes over weight of each class";
            let figure = Figure::counted(
                "jain_index",
                "",
                ExtendedReal::finite(index),
                self.test.classes.len() as u64,
                source,
            );
            report.figures.push(figure.with(labels::QUEUE, self.queue));
        }
    }
}
