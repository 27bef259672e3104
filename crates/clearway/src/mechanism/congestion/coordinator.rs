//! Coordinates the congestion test: every queue, victim, congestor, load and draw in turn.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clearway_proto::base::{RandomKey, Rank};
use clearway_proto::congestion::{
    CongestorKind, Draw, LimitingFactor, LinkId, NetworkLayout, NetworkOutcome, NullEvidence,
    Verdict, VictimEvidence, VictimKind, judge,
};
use clearway_proto::stats::{Estimate, Resampled};

use super::cell::{Case, Cell, CongestorPresence};
use super::culprit::{self, PortKnowledge};
use super::evidence::{Evidence, P99};
use super::outcome::{CaseResult, DrawResult};
use super::program::{ProgramPart, TimedCommand};
use super::single_runs::{self, SingleRuns};
use super::windows::{Grid, Windows};
use super::{figures, judgement};
use crate::mechanism::congestion::phases::{PhasePlan, PhaseRunner, PhaseTraces};
use crate::mechanism::congestion::{
    Bursts, CongestionSection, GroupGrowth, INTENSITY_MAX, NullControl,
};
use crate::report::model::{Culprit, Report, Slowest};
use crate::run::venue::{CongestionReach, HostNoise, VenueFacts};
use crate::run::{RemainingTime, RunSpec, notice};

/// Runs `test` and writes what it shows into `report`.
pub(crate) fn run(
    test: &CongestionSection,
    order: &RunSpec<'_>,
    stage: &mut PhaseRunner<'_>,
    report: &mut Report,
) -> Result<()> {
    let layout = order.scenario.layout().map_err(|why| anyhow!(why))?;
    let grid = Grid::new(&order.scenario.fabric, test.slice);
    let program = test.programs.as_ref().and_then(|programs| programs.congestor.as_deref());
    let windows = match program {
        None => Windows::new(grid, test.isolated.0, test.congested.0),
        Some(_) => Windows::around_program(grid, test.isolated.0, test.congested.0),
    };
    if program.is_none() && test.congestors.contains(&CongestorKind::Program) {
        bail!(
            "the congestor `program` is a command of yours, which only `clearway bench --congestor-cmd` takes"
        );
    }
    let facts = stage.facts();
    let mut coordinator = CongestionCoordinator {
        test,
        order,
        layout: &*layout,
        windows,
        facts,
        stage,
        done: 0,
        total: cases(test).len(),
        remaining: remaining(test, &windows, facts),
    };
    report.warnings.extend(coordinator.warn_of_weak_loads()?);
    if test.congestors.contains(&CongestorKind::Cast) && !facts.has_multicast {
        report
            .warnings
            .push("these wires have no multicast, so `cast` went along the chain".to_owned());
    }
    let (mut results, mut single_runs) = (Vec::new(), Vec::new());
    for queue in &test.queues {
        coordinator.stage.arm(queue)?;
        coordinator.facts = coordinator.stage.facts();
        let nulls = coordinator.queue(queue, report, &mut results)?;
        coordinator.judge_each_run(queue, (&nulls, &results), &mut single_runs)?;
    }
    report.slowest.extend(coordinator.slowest(&results)?);
    report.culprits = coordinator.culprits(&results, &report.slowest);
    figures::write(report, test, order, &results, coordinator.stage);
    single_runs::write(report, test, &single_runs);
    coordinator.stage.conclude(report);
    report.verdict = judgement::verdict(test, &order.scenario.verdict, &results);
    Ok(())
}

/// Returns all cases of a run in order: the null control of each queue and victim first.
fn cases(test: &CongestionSection) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for queue in &test.queues {
        for victim in &test.victims {
            let case = |congestor, intensity, bursts, members| {
                let victim = *victim;
                Case { queue, victim, congestor, intensity, bursts, members }
            };
            if test.null_control == NullControl::Run
                && !test.congestors.contains(&CongestorKind::None)
            {
                cases.push(case(CongestorKind::None, 0, Bursts::Steady, None));
            }
            for congestor in &test.congestors {
                let grows = congestor.sends() && test.groups == GroupGrowth::Growing;
                let sizes: Vec<Option<usize>> = match grows {
                    true => test.sizes().into_iter().map(Some).collect(),
                    false => vec![None],
                };
                for (intensity, bursts) in test.loads(*congestor) {
                    let of_size = |size: &Option<usize>| case(*congestor, intensity, bursts, *size);
                    cases.extend(sizes.iter().map(of_size));
                }
            }
        }
    }
    cases
}

/// Returns which cases are judged once more for each of how many runs: on each queue each victim
/// next to the first congestor that sends, which is silent, then all cases that send.
fn repeated(test: &CongestionSection) -> impl Iterator<Item = (Case<'_>, CongestorPresence, u32)> {
    let sending = || cases(test).into_iter().filter(|case| case.congestor.sends());
    let mut silent: Vec<Case<'_>> = Vec::new();
    for case in sending() {
        if !silent.iter().any(|known| (known.queue, known.victim) == (case.queue, case.victim)) {
            silent.push(case);
        }
    }
    let silent = silent.into_iter().map(|case| (case, CongestorPresence::Silent, test.null_runs));
    silent.chain(sending().map(|case| (case, CongestorPresence::Loading, test.loaded_runs)))
}

/// Returns whether smaller groups than those of `case` did enough harm.
fn has_harmed(results: &[CaseResult<'_>], case: &Case<'_>) -> bool {
    case.members.is_some()
        && results.iter().any(|result| {
            Case { members: case.members, ..result.case } == *case
                && result.verdict.as_ref().map(|it| it.outcome) == Some(NetworkOutcome::Congested)
        })
}

/// Returns what the null control of the victims of `case` showed.
fn null_of(nulls: &[(VictimKind, NullEvidence)], case: &Case<'_>) -> Option<NullEvidence> {
    nulls.iter().find(|(victim, _)| *victim == case.victim).map(|(_, null)| *null)
}

/// Goes through the cases.
struct CongestionCoordinator<'a, 'v> {
    test: &'a CongestionSection,
    order: &'a RunSpec<'a>,
    layout: &'a dyn NetworkLayout,
    windows: Windows,
    facts: VenueFacts,
    stage: &'a mut PhaseRunner<'v>,
    done: usize,
    total: usize,
    /// Tells how long the draws of all cases take.
    remaining: RemainingTime,
}

impl<'a> CongestionCoordinator<'a, '_> {
    /// Keeps `results`, which go with what `report` says of the place, in case the run ends before
    /// the others are there.
    fn keep(&self, report: &Report, results: &[CaseResult<'_>]) {
        let mut partial = report.clone();
        figures::write(&mut partial, self.test, self.order, results, self.stage);
        self.stage.close(&mut partial);
        self.order.complete.cells(partial, [self.done, self.total]);
    }

    /// Runs all cases of `queue`; returns what its null controls showed.
    fn queue(
        &mut self,
        queue: &str,
        report: &Report,
        results: &mut Vec<CaseResult<'a>>,
    ) -> Result<Vec<(VictimKind, NullEvidence)>> {
        let mut nulls = Vec::new();
        for case in cases(self.test).into_iter().filter(|case| case.queue == queue) {
            if has_harmed(results, &case) {
                self.total -= 1;
                continue;
            }
            let null = null_of(&nulls, &case);
            let result = self.case(case, null, self.brake(results, &case))?;
            if case.congestor == CongestorKind::None {
                let [isolated, congested] =
                    [&result.isolated, &result.congested].map(|all| all[P99].estimate());
                let factor = factor_of(&result.factors[P99]);
                nulls.push((case.victim, NullEvidence { factor, isolated, congested }));
            }
            let line = format!("[{}/{}] {}", self.done, self.total, sentence(&result));
            results.push(result);
            // A line that says a cell is complete must not come before the cell is kept.
            self.keep(report, results);
            notice!("{line}");
        }
        Ok(nulls)
    }

    /// Repeats the cases of `queue` as often as the test asks, with a verdict for each run.
    fn judge_each_run(
        &mut self,
        queue: &str,
        (nulls, results): (&[(VictimKind, NullEvidence)], &[CaseResult<'a>]),
        all: &mut Vec<SingleRuns<'a>>,
    ) -> Result<()> {
        for (case, congestors, count) in
            repeated(self.test).filter(|(case, ..)| case.queue == queue)
        {
            if count == 0 {
                continue;
            }
            let mut runs = SingleRuns::new(case, congestors);
            for number in 0..count {
                let silent = if congestors == CongestorPresence::Silent { " A = A" } else { "" };
                self.remaining.part(format!("{case}{silent}, run {} of {count}", number + 1));
                let draw = self.draw(case, number, (congestors, PhaseTraces::Dropped))?;
                let brake = self.brake(results, &case);
                let result = self.combine(case, vec![draw], null_of(nulls, &case), brake)?;
                let outcome = result.verdict.map_or(NetworkOutcome::Invalid, |it| it.outcome);
                runs.count(outcome);
            }
            notice!("{}", runs.sentence());
            all.push(runs);
        }
        Ok(())
    }

    fn case(
        &mut self,
        case: Case<'a>,
        null: Option<NullEvidence>,
        brake: LimitingFactor,
    ) -> Result<CaseResult<'a>> {
        let count = draws_of(self.test, &case);
        let mut draws = Vec::new();
        for number in 0..count {
            let which = match count {
                1 => String::new(),
                _ => format!(", draw {} of {count}", number + 1),
            };
            self.remaining.part(format!("{case}{which}"));
            let shown = (CongestorPresence::Loading, PhaseTraces::Kept);
            draws.push(self.draw(case, number, shown)?);
        }
        self.done += 1;
        self.combine(case, draws, null, brake)
    }

    /// Says before the run which loads cannot fill a link that victims use: their verdict can only
    /// be INVALID.
    fn warn_of_weak_loads(&self) -> Result<Vec<String>> {
        let least = self.order.scenario.verdict.overload_min;
        let mut warnings = Vec::new();
        for case in cases(self.test)
            .into_iter()
            .filter(|case| Some(case.queue) == self.test.queues.first().map(String::as_str))
        {
            let draw = self.roles(&case, 0)?;
            let cell = self.cell(case, &draw);
            if let Some(overload) = cell.overload().filter(|overload| *overload < least) {
                let (name, intensity) = (case.congestor.name(), case.intensity);
                let enough = (f64::from(intensity) * least / overload.max(0.01)).ceil();
                let remedy = if enough > f64::from(INTENSITY_MAX) {
                    "placement = \"at-victim\" lets them meet".to_owned()
                } else {
                    format!("from {enough} % it is enough")
                };
                let warning = format!(
                    "{name} at {intensity} % offers {:.0} % of the fullest link that victims use, too little for a verdict; \
                     {remedy}",
                    overload * 100.0
                );
                if !warnings.contains(&warning) {
                    notice!("clearway: {warning}");
                    warnings.push(warning);
                }
            }
        }
        Ok(warnings)
    }

    /// Draws who does what in `case`.
    fn roles(&self, case: &Case<'_>, number: u32) -> Result<Draw> {
        let request = self.test.request_of(case.members.unwrap_or(self.test.congestor_hosts));
        Ok(Draw::new(self.layout, &request, self.key(), number)?)
    }

    fn cell<'b>(&self, case: Case<'b>, draw: &'b Draw) -> Cell<'b>
    where
        'a: 'b,
    {
        Cell {
            case,
            draw,
            test: self.test,
            layout: self.layout,
            windows: self.windows,
            facts: self.facts,
            congestors: CongestorPresence::Loading,
        }
    }

    /// Returns the user's command, where that is what loads.
    fn timed_command(
        &mut self,
        case: Case<'_>,
        draw: &Draw,
    ) -> Result<Option<RefCell<TimedCommand>>> {
        let program =
            self.test.programs.as_ref().and_then(|programs| programs.congestor.as_deref());
        let Some(program) = program.filter(|_| case.congestor == CongestorKind::Program) else {
            return Ok(None);
        };
        let hosts: Vec<Rank> = draw.groups.iter().flatten().copied().collect();
        let group = self.stage.start_group(ProgramPart::Congestor, program, &hosts)?;
        Ok(Some(RefCell::new(TimedCommand::new(group, self.windows))))
    }

    fn key(&self) -> RandomKey {
        RandomKey::new(self.order.scenario.seed)
    }

    fn draw(
        &mut self,
        case: Case<'_>,
        number: u32,
        (congestors, traces): (CongestorPresence, PhaseTraces),
    ) -> Result<DrawResult> {
        let draw = self.roles(&case, number)?;
        let cell = Cell { congestors, ..self.cell(case, &draw) };
        let what = format!("{case}, draw {}", number + 1);
        let companion = match congestors {
            CongestorPresence::Loading => self.timed_command(case, &draw)?,
            CongestorPresence::Silent => None,
        };
        let plan = PhasePlan {
            windows: &cell.windows,
            part: &|rank| cell.part(rank),
            what,
            traces,
            companion: companion.as_ref().map(|it| it as _),
        };
        let phase_result = self.stage.phase(&plan)?;
        let key = self.key().purpose("intervals").node(self.done as u64).node(u64::from(number));
        let evidence = Evidence::from_result(&cell, &phase_result, key).ok_or_else(|| {
            anyhow!("{case}: no message of the victims came through; measure longer or load less")
        })?;
        let (overload, floor) = (cell.overload(), cell.floor());
        let fair_mbps = cell.fair_rate().map(|rate| rate.0 as f64 / 1e6);
        Ok(DrawResult {
            evidence,
            phase_result,
            fair_mbps,
            windows: self.windows,
            overload,
            floor,
            draw,
        })
    }

    /// Returns medians over draws, and the verdict.
    fn combine(
        &self,
        case: Case<'a>,
        draws: Vec<DrawResult>,
        null: Option<NullEvidence>,
        brake: LimitingFactor,
    ) -> Result<CaseResult<'a>> {
        let key = self.key().purpose("draws").node(self.done as u64);
        let lost = || anyhow!("{case}: no draw was measured");
        let over_draws = |purpose: &str, pick: &dyn Fn(&DrawResult) -> Resampled| {
            Resampled::median(&draws.iter().map(pick).collect::<Vec<_>>(), key.purpose(purpose))
        };
        let mut isolated = Vec::new();
        let mut congested = Vec::new();
        let mut factors = Vec::new();
        for i in 0..3 {
            isolated.push(
                over_draws("isolated", &|draw| draw.evidence.isolated[i].clone())
                    .ok_or_else(lost)?,
            );
            congested.push(
                over_draws("congested", &|draw| draw.evidence.congested[i].clone())
                    .ok_or_else(lost)?,
            );
            let each: Option<Vec<Resampled>> = draws.iter().map(|draw| draw.factor(i)).collect();
            factors.push(each.and_then(|each| Resampled::median(&each, key.purpose("factor"))));
        }
        let [isolated, congested]: [[Resampled; 3]; 2] = [isolated, congested]
            .map(|all| all.try_into().unwrap_or_else(|_| unreachable!("three quantiles")));
        let factors = factors.try_into().unwrap_or_else(|_| unreachable!("three quantiles"));
        let mut result = CaseResult { case, draws, isolated, congested, factors, verdict: None };
        result.verdict = self.verdict(&result, null, brake);
        Ok(result)
    }

    /// Returns what holds the congestors of `case` up if they fall short, as `results` show it.
    fn brake(&self, results: &[CaseResult<'_>], case: &Case<'_>) -> LimitingFactor {
        if let Some(congestor) = case.congestor.unyielding() {
            let twin = Case { congestor, ..*case };
            return LimitingFactor::Yielding {
                unyielding: reached_share(results, &twin, |it| it != NetworkOutcome::Invalid),
            };
        }
        match (self.facts.hosts, self.facts.reach) {
            (HostNoise::Simulated, CongestionReach::Tree) => LimitingFactor::Network {
                // Of the first queue of the run, if victims suffered there.
                unprotected: results.first().and_then(|first| {
                    let twin = Case { queue: first.case.queue, ..*case };
                    reached_share(results, &twin, |it| it == NetworkOutcome::Congested)
                }),
            },
            _ => LimitingFactor::Unknown,
        }
    }

    fn verdict(
        &self,
        result: &CaseResult<'_>,
        null: Option<NullEvidence>,
        brake: LimitingFactor,
    ) -> Option<Verdict> {
        let factor = factor_of(&result.factors[P99]);
        let least = |pick: &dyn Fn(&DrawResult) -> Option<f64>| {
            result.draws.iter().filter_map(pick).min_by(f64::total_cmp)
        };
        let floor = result.draws.iter().map(|draw| draw.floor).max()?;
        let evidence = VictimEvidence {
            factor,
            isolated: result.isolated[P99].estimate(),
            congested: result.congested[P99].estimate(),
            floor,
            processor_delay: result.draws.iter().map(|draw| draw.evidence.processor_delay).max()?,
            congestor_share: least_share(&result.draws),
            brake,
            overload: least(&|draw| draw.overload),
            idle_limit: match (self.facts.hosts, result.case.victim) {
                (HostNoise::Real, VictimKind::Ping | VictimKind::Get) => Some(floor),
                _ => None,
            },
            null,
        };
        // A congestor that puts nothing on the network asks no question about it.
        result.case.congestor.sends().then(|| judge(&self.order.scenario.verdict, &evidence))
    }

    /// Returns where victims of the congested cells wait, and for whom, in the worst draw of each.
    fn culprits(&mut self, results: &[CaseResult<'_>], slowest: &[Slowest]) -> Vec<Culprit> {
        let hosts = self.stage.hosts();
        let mut found = Vec::new();
        for result in CaseResult::deciding(results, self.test) {
            let outcome = result.verdict.as_ref().map(|it| it.outcome);
            if outcome != Some(NetworkOutcome::Congested)
                || result.case.congestor == CongestorKind::Program
            {
                continue;
            }
            let p99 = |draw: &&DrawResult| draw.evidence.congested[P99].estimate().value;
            let worst = result.draws.iter().max_by(|a, b| p99(a).total_cmp(&p99(b)));
            let Some(draw) = worst else { continue };
            let labels = figures::labels_of(self.test, result);
            let cell = self.cell(result.case, &draw.draw);
            let names: BTreeMap<LinkId, Vec<String>> = cell
                .suspects()
                .into_iter()
                .map(|(link, _)| (link, self.stage.port_names(link, self.layout)))
                .collect();
            let known = PortKnowledge {
                hosts: &hosts,
                names: &|link| names.get(&link).cloned().unwrap_or_default(),
                full: &draw.phase_result.full,
                slowest: slowest.iter().find(|it| it.labels == labels),
            };
            let culprit = culprit::find(&cell, &known);
            found.extend(culprit.map(|culprit| Culprit { labels, ..culprit }));
        }
        found
    }

    /// Returns the slowest messages of the victims in the worst draw of the worst case, and what
    /// held them up.
    fn slowest(&mut self, results: &[CaseResult<'_>]) -> Result<Option<Slowest>> {
        let judged = results.iter().filter(|result| result.case.congestor.sends());
        let draws = judged.flat_map(|result| result.draws.iter().map(move |draw| (result, draw)));
        let p99 = |draw: &DrawResult| draw.evidence.congested[P99].estimate().value;
        let Some((result, draw)) = draws.max_by(|(_, a), (_, b)| p99(a).total_cmp(&p99(b))) else {
            return Ok(None);
        };
        let cell = self.cell(result.case, &draw.draw);
        let what = format!("{}, draw {}", result.case, draw.draw.number + 1);
        let plan = PhasePlan {
            windows: &cell.windows,
            part: &|rank| cell.part(rank),
            what,
            traces: PhaseTraces::Kept,
            companion: None,
        };
        let slowest = self.stage.slowest(result.case.queue, draw.phase_result.number, &plan)?;
        Ok(slowest
            .map(|slowest| Slowest { labels: figures::labels_of(self.test, result), ..slowest }))
    }
}

/// Returns the draws of `case`. The null control asks about the machine, not about the hosts: one
/// draw answers, unless it is the whole test.
fn draws_of(test: &CongestionSection, case: &Case<'_>) -> u32 {
    let is_control =
        case.congestor == CongestorKind::None && !test.congestors.contains(&CongestorKind::None);
    if is_control { 1 } else { test.draws }
}

/// Begins to tell how long the draws of all cases take: on a real network as long as their windows
/// are.
fn remaining(test: &CongestionSection, windows: &Windows, facts: VenueFacts) -> RemainingTime {
    let planned = (facts.hosts == HostNoise::Real).then_some(Duration::from_secs(1));
    let each = (windows.length() + windows.grid.drain).as_secs_f64();
    let draws = cases(test).iter().map(|case| draws_of(test, case)).sum::<u32>()
        + repeated(test).map(|(.., runs)| runs).sum::<u32>();
    let noun = if test.draws == 1 { "cell" } else { "draw" };
    RemainingTime::begin(noun, vec![each; draws as usize], planned)
}

/// Returns what congestors reached in the worst draw.
fn least_share(draws: &[DrawResult]) -> Option<f64> {
    draws.iter().filter_map(|draw| draw.evidence.congestor_share).min_by(f64::total_cmp)
}

/// Returns what the congestors of `case` reached, if its outcome is as `wanted`.
fn reached_share(
    results: &[CaseResult<'_>],
    case: &Case<'_>,
    wanted: impl Fn(NetworkOutcome) -> bool,
) -> Option<f64> {
    let result = results.iter().find(|result| result.case == *case)?;
    let is_wanted = result.verdict.as_ref().is_some_and(|verdict| wanted(verdict.outcome));
    if is_wanted { least_share(&result.draws) } else { None }
}

/// Returns the factor as a verdict sees it: where the base case itself was lost it may be anything,
/// which forbids a statement.
fn factor_of(factor: &Option<Resampled>) -> Estimate {
    factor.as_ref().map_or_else(|| Estimate::unbounded(f64::INFINITY, 0), Resampled::estimate)
}

fn sentence(result: &CaseResult<'_>) -> String {
    let p99 = |of: &[Resampled; 3]| judgement::duration(of[P99].estimate().value);
    let verdict = result
        .verdict
        .as_ref()
        .map_or_else(String::new, |verdict| format!("  {}", verdict.outcome));
    format!("{}: p99 {} -> {}{verdict}", result.case, p99(&result.isolated), p99(&result.congested))
}
