//! What runs showed: the application's times and each transfer's bytes, slice by slice.

use clearway_proto::base::{Class, Nanos};
use clearway_proto::congestion::{Metric, PhaseRecord};
use clearway_proto::stats::{Histogram, Quantile, QuantileValue};
use clearway_sim::graph::DeviceId;

use super::roles::Transfer;
use crate::mechanism::congestion::windows::{Window, Windows};
use crate::report::model::{PhaseLoad, PortLoad};
use crate::run::venue::SimMachine;

/// The transfers of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferSet {
    Alone(Transfer),
    All,
}

impl TransferSet {
    pub(super) fn has(self, transfer: Transfer) -> bool {
        self == Self::All || self == Self::Alone(transfer)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Alone(transfer) => transfer.name(),
            Self::All => "all transfers",
        }
    }
}

/// What the application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    Ping,
    Allreduce,
    /// Pings of an MPI program, in a lab only.
    MpiPing,
}

impl Application {
    pub(super) const ALL: [Self; 3] = [Self::Ping, Self::Allreduce, Self::MpiPing];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Allreduce => "allreduce",
            Self::MpiPing => "mpi ping",
        }
    }

    /// Returns where its times begin and end, as the source of a figure.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Ping | Self::Allreduce => "from the intended beginning to the end",
            Self::MpiPing => "round trips of an MPI program, one at a time, from beginning to end",
        }
    }

    /// Returns the metric of ranks that times it; nothing where no rank does.
    const fn metric(self) -> Option<Metric> {
        match self {
            Self::Ping => Some(Metric::OneWay),
            Self::Allreduce => Some(Metric::Iteration),
            Self::MpiPing => None,
        }
    }
}

/// The fullest link of a network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BusiestLink {
    /// From where to where.
    pub(super) name: String,
    /// What it carries of its rate, from 0 to 1.
    pub(super) fraction: f64,
}

impl BusiestLink {
    /// Returns the share of its rate that `port` carries for transfers. Where the application has no
    /// lane of its own, its bytes count too: far below a hundredth.
    pub(super) fn new(port: &PortLoad, load: &PhaseLoad, machine: &SimMachine) -> Self {
        let urgent = |name: &String| {
            name.contains(Class::LowLatency.name()) && !name.contains(Class::Bulk.name())
        };
        let own = load.lanes.iter().zip(&port.lanes).filter(|(name, _)| urgent(name));
        let urgent: f64 = own.map(|(_, percent)| percent).sum();
        let [from, to] = port.ends.map(|end| machine.network.graph.name(DeviceId(end)));
        let fraction = port.load / 100.0 * (1.0 - urgent / 100.0);
        Self { name: format!("{from} to {to}"), fraction }
    }
}

/// What one run showed.
#[derive(Clone, Debug)]
pub(super) struct SharedRun {
    pub(super) queue: String,
    pub(super) set: TransferSet,
    /// Times in ns, by what the application does and by slice.
    pub(super) times: [Vec<Histogram>; Application::ALL.len()],
    /// Bytes that arrived, by transfer and by slice.
    pub(super) bytes: [Vec<u64>; Transfer::ALL.len()],
    pub(super) link: Option<BusiestLink>,
    /// Slices over which rates are averaged for a drawing: counters of commands move in steps.
    pub(super) smoothing: usize,
    /// Share of the time with transfers that ranks of the application waited for a processor.
    pub(super) processor_wait: f64,
}

impl SharedRun {
    /// Creates a run of `set` on `queue` in which nothing has happened, of this many slices.
    pub(super) fn new(queue: &str, set: TransferSet, slices: u32) -> Self {
        let slices = slices as usize;
        Self {
            queue: queue.to_owned(),
            set,
            times: std::array::from_fn(|_| vec![Histogram::new(); slices]),
            bytes: std::array::from_fn(|_| vec![0; slices]),
            link: None,
            smoothing: 1,
            processor_wait: 0.0,
        }
    }

    /// Adds `bytes` that `transfer` carried in `slice`.
    pub(super) fn carried(&mut self, transfer: Transfer, slice: u32, bytes: u64) {
        if let Some(sum) = self.bytes[transfer as usize].get_mut(slice as usize) {
            *sum += bytes;
        }
    }

    /// Adds a time of the application that began in `slice`.
    pub(super) fn timed(&mut self, kind: Application, slice: u32, time: Nanos) {
        if let Some(times) = self.times[kind as usize].get_mut(slice as usize) {
            times.record(time.0);
        }
    }

    /// Returns whether the application did this: ranks ping and do allreduce in every run.
    pub(super) fn has_run(&self, kind: Application) -> bool {
        kind.metric().is_some() || self.times[kind as usize].iter().any(|it| !it.is_empty())
    }

    /// Adds what a host recorded of the application, the cast and the checkpoint.
    pub(super) fn add_record(&mut self, record: &PhaseRecord) {
        for (kind, slices) in Application::ALL.into_iter().zip(&mut self.times) {
            let timed = |metric| kind.metric() == Some(metric);
            let series = record.series.iter().filter(|series| timed(series.metric));
            for (slice, times) in series.flat_map(|series| &series.slices) {
                if let Some(sum) = slices.get_mut(*slice as usize) {
                    sum.merge(times);
                }
            }
        }
        for series in &record.load {
            let of_class = |transfer: &&Transfer| transfer.class() == series.class;
            let loads = [Transfer::Cast, Transfer::Checkpoint];
            let Some(transfer) = loads.iter().find(of_class) else { continue };
            for slice in &series.slices {
                self.carried(*transfer, slice.slice, slice.body);
            }
        }
    }

    /// Returns the application's times in slices that `counts` chooses.
    pub(super) fn times(&self, kind: Application, counts: impl Fn(u32) -> bool) -> Histogram {
        let chosen = (0..).zip(&self.times[kind as usize]).filter(|(slice, _)| counts(*slice));
        Histogram::merged(chosen.map(|(_, times)| times))
    }

    /// Returns the application's p99 in us, slice by slice; nothing where nothing was timed.
    pub(super) fn p99_series(&self, kind: Application) -> Vec<Option<f64>> {
        self.times[kind as usize]
            .iter()
            .map(|times| (!times.is_empty()).then(|| quantile_us(times, Quantile::P99)))
            .collect()
    }

    /// Returns what `transfer` carried in bytes per second while all transfers ran.
    pub(super) fn rate(&self, transfer: Transfer, windows: &Windows) -> f64 {
        let Window { from, until } = windows.congested;
        let counted = self.bytes[transfer as usize].get(from as usize..until as usize);
        let bytes: u64 = counted.unwrap_or_default().iter().sum();
        bytes as f64 / windows.congested.length(windows.grid).as_secs_f64()
    }

    /// Returns what `transfer` carried in bytes per second, slice by slice.
    pub(super) fn rate_series(&self, transfer: Transfer, windows: &Windows) -> Vec<f64> {
        let (all, slice) = (&self.bytes[transfer as usize], windows.grid.slice.as_secs_f64());
        let around = self.smoothing / 2;
        let mean = |place: usize| {
            let near = &all[place.saturating_sub(around)..(place + around + 1).min(all.len())];
            near.iter().sum::<u64>() as f64 / (near.len() as f64 * slice)
        };
        (0..all.len()).map(mean).collect()
    }
}

/// Returns a quantile of times in ns as us; infinite where so much was lost or nothing timed.
pub(super) fn quantile_us(times: &Histogram, at: Quantile) -> f64 {
    match times.quantile(at) {
        QuantileValue::Finite(ns) => ns as f64 / 1e3,
        _ => f64::INFINITY,
    }
}
