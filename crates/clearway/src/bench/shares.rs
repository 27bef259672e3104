//! Conducts the class share test: one sender for each class fills one port, and the port's bytes are counted by class.
//!
//! # Model
//! A class's share is its part of all bytes that arrived at the receiver in the measured window. It is configured as
//! `weight / sum of the weights of all classes that send`, on weighted queues.

use std::collections::BTreeMap;

use anyhow::Result;
use clearway_lab::QueueKind;
use clearway_proto::base::{Bytes, Class, RandomKey, Rank};
use clearway_proto::congestion::{Flow, FlowStyle, LoadKind, LoadTask};
use clearway_proto::stats::{Estimate, jain};

use super::stage::{Sighting, Stage};
use super::windows::{SLICE, Windows};
use super::{Order, evidence};
use crate::report::model::{ClassShare, Figure, Labels, Real, Report, labels};
use crate::scenario::Shares;

/// Bytes of one message: an Ethernet frame's worth, so that every class queues packets of one size.
const MESSAGE: Bytes = Bytes(1300);
/// Replicates of the bootstrap over slices, as in `stats`.
const RESAMPLES: usize = 1000;

/// Runs `test` and writes what it shows into `report`.
pub(super) fn run(test: &Shares, order: &Order<'_>, stage: &mut Stage, report: &mut Report) -> Result<()> {
    for queue in &test.queues {
        stage.arm(*queue)?;
        let windows = Windows::new(SLICE.0 / 1_000_000, test.measured_ms);
        let sighting = stage.phase(&windows, |_| None, |rank| loads(test, order, &windows, rank))?;
        summarise(test, order, *queue, &windows, &sighting, report);
    }
    Ok(())
}

fn loads(test: &Shares, order: &Order<'_>, windows: &Windows, rank: Rank) -> Vec<LoadTask> {
    let (receiver, senders) = test.senders();
    let Some((_, class)) = senders.into_iter().find(|(sender, _)| *sender == rank) else { return Vec::new() };
    let rate = order.scenario.layout().host_rate.percent(test.offered_percent);
    let flow =
        Flow { targets: vec![receiver], style: FlowStyle::Push, rate, message: MESSAGE, window: None, burst: None };
    let at = |slice: u32| SLICE.times(u64::from(slice));
    let (from, until) = (at(windows.load.from), at(windows.load.until));
    vec![LoadTask { kind: LoadKind::Flows(vec![flow]), class, from, until }]
}

/// Link bytes of each class in each slice of the measured window, at the receiver.
fn arrivals(test: &Shares, windows: &Windows, sighting: &Sighting) -> Vec<BTreeMap<Class, u64>> {
    let (receiver, _) = test.senders();
    let mut slices = vec![BTreeMap::new(); (windows.congested.until - windows.congested.from) as usize];
    for series in &sighting.records[receiver.index()].load {
        for entry in series.slices.iter().filter(|entry| windows.congested.contains(entry.slice)) {
            *slices[(entry.slice - windows.congested.from) as usize].entry(series.class).or_default() += entry.link;
        }
    }
    slices
}

fn share(slices: &[&BTreeMap<Class, u64>], class: Class) -> f64 {
    let total: u64 = slices.iter().flat_map(|slice| slice.values()).sum();
    let own: u64 = slices.iter().filter_map(|slice| slice.get(&class)).sum();
    own as f64 / (total as f64).max(1.0)
}

/// The share of `class` with its bootstrap interval over slices.
fn estimate(slices: &[BTreeMap<Class, u64>], class: Class, key: RandomKey) -> Estimate {
    let mut stream = key.purpose(class.name()).stream();
    let mut replicates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<_> = slices.iter().map(|_| &slices[stream.below(slices.len() as u64) as usize]).collect();
            share(&drawn, class)
        })
        .collect();
    replicates.sort_unstable_by(f64::total_cmp);
    let all: Vec<_> = slices.iter().collect();
    let beyond = RESAMPLES / 40;
    Estimate::new(share(&all, class), [replicates[beyond], replicates[RESAMPLES - 1 - beyond]], slices.len() as u64)
}

fn summarise(
    test: &Shares,
    order: &Order<'_>,
    queue: QueueKind,
    windows: &Windows,
    sighting: &Sighting,
    report: &mut Report,
) {
    let slices = arrivals(test, windows, sighting);
    let weights = order.scenario.fabric.weights;
    let sum: u32 = test.classes.iter().map(|class| weights.of(*class)).sum();
    let marks = evidence::marks(&sighting.records);
    let gaps = evidence::longest_gaps(&sighting.records);
    let key = RandomKey::new(order.scenario.seed).purpose("shares").purpose(queue.name());
    for class in &test.classes {
        let reached = estimate(&slices, *class, key);
        let configured = (queue == QueueKind::Weighted).then(|| f64::from(weights.of(*class)) / f64::from(sum));
        let named = |figure: Figure| figure.with(labels::QUEUE, queue.name()).with("class", class.name());
        let source = "bootstrap over slices of 100 ms, 95 %";
        report.figures.push(named(Figure::estimate("class_share", "", &reached, 1.0, source)));
        if let Some(configured) = configured {
            let value = Real::finite(configured);
            let source = "weight over the sum of the sending classes' weights";
            report.figures.push(named(Figure::counted("class_share_configured", "", value, 0, source)));
        }
        let mut row = ClassShare::seen(*class, &marks);
        row.labels = Labels::from([(labels::QUEUE.to_owned(), queue.name().to_owned())]);
        row.configured = configured.map(|share| Real::finite(share * 100.0));
        row.reached = Some(Real::finite(reached.value * 100.0));
        row.starved_ms = gaps.get(class).map(|gap| Real::finite(gap.0 as f64 / 1e6));
        report.shares.push(row);
    }
    totals(test, order, queue, &slices, report);
}

/// What the port carried in all, and how evenly weights were honoured.
fn totals(test: &Shares, order: &Order<'_>, queue: QueueKind, slices: &[BTreeMap<Class, u64>], report: &mut Report) {
    let bytes: u64 = slices.iter().flat_map(BTreeMap::values).sum();
    let carried = evidence::megabits(bytes / (slices.len() as u64).max(1));
    let port = order.scenario.layout().host_rate.0 as f64 / 1e6;
    let figure = Figure::counted(
        "port_use",
        "%",
        Real::finite(carried / port * 100.0),
        slices.len() as u64,
        "bytes that arrived over the port's rate",
    );
    report.figures.push(figure.with(labels::QUEUE, queue.name()));
    let weighted: Vec<u64> = test
        .classes
        .iter()
        .map(|class| {
            let own: u64 = slices.iter().filter_map(|slice| slice.get(class)).sum();
            own / u64::from(order.scenario.fabric.weights.of(*class))
        })
        .collect();
    if queue == QueueKind::Weighted
        && let Some(index) = jain(&weighted)
    {
        let figure = Figure::counted(
            "jain_index",
            "",
            Real::finite(index),
            test.classes.len() as u64,
            "bytes over weight of each class",
        );
        report.figures.push(figure.with(labels::QUEUE, queue.name()));
    }
}
