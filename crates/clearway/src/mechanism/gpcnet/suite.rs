//! The two programs of the original: which tests in which order, and what is said below their
//! tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use clearway_proto::base::{Class, Nanos, Rank};
use clearway_proto::gpcnet::{
    CongestedTest, Congestor, CorrectedDefects, Defect, Detail, GpcnetLayout, GpcnetRecord, LIMIT,
    LoadDraw, LoadReport, NetworkReport, Summary, TableRow, Task, Test, TestFailure,
    TestParameters,
};

use super::runner::{TestRunner, WireFacts};
use super::{GpcnetSpec, figures};
use crate::report::model::{Figure, Report, labels};
use crate::run::{RemainingTime, detail, ended};

/// A test that takes longer than this many times its limit, and this, is stuck: as published a
/// measurement is not ended by the limit, and 30 rings of 2 MiB each way take 13 minutes where
/// ranks share 25 Mb/s.
const TIMEOUT_LIMITS: u64 = 100;
/// See [`TIMEOUT_LIMITS`].
const TIMEOUT_LEAST: Nanos = Nanos::from_secs(60);
/// Nodes of one congestor below which an incast has fewer than three senders.
const GROUP_SMALL: usize = 4;

/// A run under way.
pub(super) struct SuiteRun {
    runner: TestRunner,
    wires: WireFacts,
    layout: GpcnetLayout,
    ranks: usize,
    order: TestParameters,
    seed: u32,
    detail: Detail,
    notes: String,
    resent: u64,
    wrong: u64,
    remaining: Option<RemainingTime>,
    figures: Vec<Figure>,
    warnings: Vec<String>,
}

impl SuiteRun {
    pub(super) fn new(wanted: &GpcnetSpec<'_>, mut runner: TestRunner) -> Result<Self> {
        let names = runner.names();
        let wires = runner.wires()?;
        let flags = wanted.flags;
        // The original's seed is the C library's unsigned.
        let seed = u32::try_from(wanted.seed).map_err(|_| {
            anyhow::anyhow!("GPCNeT's seed has 32 bits: --seed {} is too large", wanted.seed)
        })?;
        let [victim_class, congestor_class]: [Class; 2] = wanted.classes;
        let order = TestParameters {
            number: 0,
            victim_class,
            congestor_class,
            body_max: wires.body_max,
            limit: flags.limit.map_or(LIMIT, |limit| limit.0),
            measurements_max: flags.measurements.unwrap_or(runner.measurements()).max(1),
            rings_max: flags.rings.unwrap_or(u32::MAX).max(1),
            mended: flags.mended(),
        };
        let detail = if flags.verbose_table { Detail::Long } else { Detail::Short };
        let layout = GpcnetLayout::by_name(&names);
        let mut run = Self {
            ranks: names.len(),
            runner,
            wires,
            layout,
            order,
            seed,
            detail,
            notes: String::new(),
            resent: 0,
            wrong: 0,
            remaining: None,
            figures: Vec::new(),
            warnings: Vec::new(),
        };
        run.introduce();
        Ok(run)
    }

    /// Adds the notes that are known before the first test.
    fn introduce(&mut self) {
        let TestParameters {
            victim_class,
            congestor_class,
            limit,
            measurements_max,
            rings_max,
            mended,
            ..
        } = self.order;
        let counts = Test::Latency.counts(self.layout.nodes());
        let about = self.runner.about();
        self.note(&format!("{about}; seed {}", self.seed));
        self.note(&format!(
            "classes: victims {victim_class}, congestors {congestor_class}; the original has one class"
        ));
        self.note(&format!(
            "measurements: {} at most (original {}); rings {} (original {}); limit {limit}",
            measurements_max.min(counts.measurements),
            counts.measurements,
            rings_max.min(counts.rings),
            counts.rings,
        ));
        self.note(&mended.to_string());
    }

    /// Writes what the tests found into `report`.
    pub(super) fn write(&mut self, report: &mut Report) {
        self.runner.introduce(report);
        report.figures.append(&mut self.figures);
        report.warnings.append(&mut self.warnings);
        ended(report);
        self.runner.conclude(report);
    }

    fn note(&mut self, line: &str) {
        self.notes.push_str(line);
        self.notes.push('\n');
    }

    /// Runs the network test.
    pub(super) fn network(&mut self) -> Result<String> {
        let slices = self.layout.all_slices()?;
        self.expect(Test::NETWORK.len());
        let mut rows = Vec::new();
        for test in Test::NETWORK {
            rows.push(self.alone(test, &slices)?);
        }
        let report = NetworkReport { ranks: self.ranks, nodes: self.layout.nodes(), rows };
        Ok(self.finish(report.text(self.detail)))
    }

    /// Runs the network load test.
    pub(super) fn load(&mut self) -> Result<String> {
        let draw = self.layout.draw(self.seed, self.order.mended)?;
        let least = draw.congestor_nodes.len() / Congestor::ALL.len();
        if least < GROUP_SMALL {
            self.note(&format!(
                "few nodes: a congestor has as few as {least}, so an incast has {} senders",
                least - 1
            ));
        }
        let congestors = if self.detail == Detail::Long { Congestor::ALL.len() } else { 0 };
        self.expect(2 * Test::LOAD.len() + congestors);
        let mut isolated = Vec::new();
        for test in Test::LOAD {
            isolated.push(self.alone(test, &draw.victims)?);
        }
        let mut congestors = Vec::new();
        if self.detail == Detail::Long {
            for congestor in Congestor::ALL {
                congestors.push(self.congestor_alone(congestor, &draw)?);
            }
        }
        let mut congested = Vec::new();
        for test in Test::LOAD {
            congested.push(self.congested_test(test, &draw)?);
        }
        if self.detail == Detail::Short && self.order.mended.has(Defect::EarlyFigures) {
            congested.iter().for_each(|loaded| self.notes.push_str(&congestor_note(loaded)));
        }
        for (alone, loaded) in isolated.iter().zip(&congested) {
            self.figures.extend(figures::of_impact(alone, &loaded.row, self.order.mended));
        }
        let report = LoadReport {
            ranks: self.ranks,
            victim_nodes: draw.victim_nodes.len(),
            congestor_nodes: draw.congestor_nodes.len(),
            isolated,
            congestors,
            congested,
            mended: self.order.mended,
        };
        Ok(self.finish(report.text(self.detail)))
    }

    /// Returns the table and what it does not say.
    fn finish(&mut self, table: String) -> String {
        let remarks = self.runner.remarks();
        let Self { notes, resent, wrong, .. } = self;
        let mut text = format!("{table}\n{notes}");
        if *resent > 0 {
            let _ = writeln!(text, "{resent} segments were lost or late and were sent again");
        }
        if *wrong > 0 {
            let _ = writeln!(text, "{wrong} sums were wrong; this is a defect of the program");
        }
        for remark in remarks {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    /// Notes what stands in the way of an operation that a test needs; returns whether anything
    /// does.
    fn refusal(&mut self, name: &str, needs: Option<clearway_proto::wire::OperationKind>) -> bool {
        let failure = TestFailure::without(needs, self.wires.operations);
        if let Some(failure) = failure {
            let line = format!("{name}: {}", failure.sentence());
            if !self.notes.contains(&line) {
                self.note(&line);
                self.warnings.push(line);
            }
        }
        failure.is_some()
    }

    fn measure(
        &mut self,
        what: &str,
        tasks: &BTreeMap<Rank, Task>,
    ) -> Result<BTreeMap<Rank, GpcnetRecord>> {
        detail!("{what}, {} ranks ...", tasks.len());
        if let Some(remaining) = &self.remaining {
            remaining.part(what);
        }
        let timeout = self.order.limit.times(TIMEOUT_LIMITS) + TIMEOUT_LEAST;
        let records = self.runner.run(tasks, timeout)?;
        self.resent += records.values().map(|record| record.resent).sum::<u64>();
        self.wrong += records.values().map(|record| record.wrong).sum::<u64>();
        if let Some(failure) = records.values().find_map(|record| record.failure) {
            let line = format!("{what}: {}", failure.sentence());
            self.note(&line);
            self.warnings.push(line);
        }
        Ok(records)
    }

    /// Begins to tell how long `tests` take.
    fn expect(&mut self, tests: usize) {
        self.remaining = Some(RemainingTime::begin("test", vec![1.0; tests], None));
    }

    fn next_order(&mut self) -> &TestParameters {
        self.order.number += 1;
        &self.order
    }

    fn alone(&mut self, test: Test, slices: &[Vec<Rank>]) -> Result<TableRow<Test>> {
        if self.refusal(&test.name(), test.needs()) {
            return Ok(TableRow { of: test, summary: None });
        }
        let tasks = self.next_order().isolated(test, slices);
        let records = self.measure(&test.name(), &tasks)?;
        let all: Vec<&GpcnetRecord> = records.values().collect();
        let summary = Summary::from_test(test, &all, self.order.mended);
        self.figures.extend(figures::of_test(test, labels::ISOLATED, summary.as_ref()));
        Ok(TableRow { of: test, summary })
    }

    fn congestor_alone(
        &mut self,
        congestor: Congestor,
        draw: &LoadDraw,
    ) -> Result<TableRow<Congestor>> {
        if self.refusal(congestor.name(), congestor.needs()) {
            return Ok(TableRow { of: congestor, summary: None });
        }
        let tasks = self.next_order().congestor(congestor, draw);
        let records = self.measure(congestor.name(), &tasks)?;
        let row = congestor_row(congestor, draw, &records, self.order.mended);
        self.figures.extend(figures::of_congestor(&row, None));
        Ok(row)
    }

    fn congested_test(&mut self, test: Test, draw: &LoadDraw) -> Result<CongestedTest> {
        let possible: Vec<Congestor> = Congestor::ALL
            .into_iter()
            .filter(|congestor| !self.refusal(congestor.name(), congestor.needs()))
            .collect();
        let tasks =
            self.next_order().congested(test, draw, &|congestor| possible.contains(&congestor));
        let records = self.measure(&format!("{} under load", test.name()), &tasks)?;
        let victims: Vec<&GpcnetRecord> =
            draw.victims.iter().flatten().filter_map(|rank| records.get(rank)).collect();
        let mended = self.order.mended;
        let congestors: Vec<TableRow<Congestor>> =
            Congestor::ALL.map(|congestor| congestor_row(congestor, draw, &records, mended)).into();
        let summary = Summary::from_test(test, &victims, mended);
        self.figures.extend(figures::of_test(test, labels::CONGESTED, summary.as_ref()));
        for row in &congestors {
            self.figures.extend(figures::of_congestor(row, Some(test)));
        }
        Ok(CongestedTest { row: TableRow { of: test, summary }, congestors })
    }
}

fn congestor_row(
    congestor: Congestor,
    draw: &LoadDraw,
    records: &BTreeMap<Rank, GpcnetRecord>,
    mended: CorrectedDefects,
) -> TableRow<Congestor> {
    let groups = draw.groups.iter().filter(|group| group.congestor == congestor);
    let all: Vec<&GpcnetRecord> =
        groups.flat_map(|group| &group.ranks).filter_map(|rank| records.get(rank)).collect();
    TableRow { of: congestor, summary: Summary::from_congestor(congestor, &all, mended) }
}

/// Returns what the congestors did during a victim's test, in a line.
fn congestor_note(loaded: &CongestedTest) -> String {
    let rate = |row: &TableRow<Congestor>| match row.summary {
        Some(summary) => format!("{} {:.1}", row.of.name(), summary.avg),
        None => format!("{} none", row.of.name()),
    };
    let rates: Vec<String> = loaded.congestors.iter().map(rate).collect();
    format!("congestors during {}, MiB/s/rank: {}\n", loaded.row.of.title(), rates.join(", "))
}
