//! Commands that run something or read what a run left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::Topology;
use clearway_proto::base::{BitsPerSec, Class};
use clearway_proto::congestion::{CongestorKind, Placement};
use clearway_runtime::launch::escaped;
use serde::Serialize;
use toml::de::DeTable;

use super::registry::{self, presenters};
use super::results::{ReportDestination, ReportFlags};
use super::{BenchFlags, JobArguments, Output, print, refuses_permission};
use crate::mechanism::congestion::phase_protocol::CongestionProtocol;
use crate::mechanism::congestion::program::Programs;
use crate::mechanism::congestion::rate::MeasuredRate;
use crate::mechanism::congestion::{self, CongestionSection, GroupGrowth};
use crate::report::FigureFormat;
use crate::report::model::{Figure, Report, RunOutcome, Verdict};
use crate::report::terminal::ColourMode;
use crate::report::{diff, place_comparison, store, terminal};
use crate::run::exit::{Exit, UsageError, wrong_usage};
use crate::run::job::{CoordinatedJob, JobRole, JobSpec, SealingPolicy, SshHosts};
use crate::run::notice;
use crate::run::venue::{self, JobVenue, LaunchSpec};
use crate::run::{self, CompletedParts, RunSpec, VenueKind};
use crate::scenario::{self, Fabric, Scenario, Section};
use clearway_wires::WireRequest;

/// The source of the rate of a job's host links.
#[derive(Clone, Copy)]
enum HostRateSource {
    /// The scenario's fabric.
    OfScenario,
    /// The machines' interfaces; where they do not, it is measured.
    OfSite,
}

/// Whether a test may be changed so that it has room on the hosts there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RoleFitting {
    /// A scenario says who does what.
    Given,
    /// What no flag says is a default, and fits the hosts.
    Fitted,
}

/// What only a run across a job needs to know.
pub(super) struct JobFlags<'a> {
    rate: HostRateSource,
    roles: RoleFitting,
    given: Option<&'a JobArguments>,
}

impl<'a> JobFlags<'a> {
    /// Returns what `given` says, of a run whose scenario says the rest.
    pub(super) const fn from_arguments(given: Option<&'a JobArguments>) -> Self {
        Self { rate: HostRateSource::OfScenario, roles: RoleFitting::Given, given }
    }

    /// Returns the places of a run for which `on` was said: a file of hosts means a cluster.
    pub(super) fn places(&self, on: &[VenueKind]) -> Result<Vec<VenueKind>> {
        match self.given {
            Some(JobArguments { hostfile: Some(_), .. })
                if on.iter().any(|place| *place != VenueKind::Cluster) =>
            {
                wrong_usage!(
                    "--hostfile starts ranks on other machines, which is --on cluster and nothing else"
                )
            }
            Some(JobArguments { hostfile: Some(_), .. }) => Ok(vec![VenueKind::Cluster]),
            _ => Ok(on.to_vec()),
        }
    }

    pub(super) fn order(&self) -> Result<JobSpec> {
        let wire = self.given.map_or(Ok(WireRequest::AUTO), JobArguments::wire_request)?;
        let Some(given) = self.given else {
            return Ok(JobSpec { wire, ..JobSpec::LAUNCHED });
        };
        let sealing = if given.insecure { SealingPolicy::Insecure } else { SealingPolicy::Sealed };
        let hosts = given
            .hostfile
            .as_ref()
            .map(|path| SshHosts::read(path, given.remote_program.as_deref()));
        Ok(JobSpec { sealing, wire, hosts: hosts.transpose()?, ..JobSpec::LAUNCHED })
    }
}

/// Runs the tour: the laboratory (or, where it is refused, the simulator), then all mechanisms on one
/// simulated network.
pub(crate) fn demo(output: &Output) -> Result<Exit> {
    notice!(
        "A lab of 8 virtual hosts on one switch: two of them ping each other while three others send to one of the two at\n\
         once, first through one FIFO queue per port, then with a queue for each traffic class. Less than a minute."
    );
    // Programs get one document, at the end.
    let shown = (!output.format.is_for_programs()).then_some(output.format);
    let (exit, directory) = match shipped("demo", VenueKind::Lab, output, shown) {
        Err(error) if refuses_permission(&error) => {
            notice!("clearway: {error:#}");
            notice!(
                "The same hosts, rates and queues now run on the simulated fabric instead, which needs no permission."
            );
            shipped("demo", VenueKind::Sim, output, shown)?
        }
        other => other?,
    };
    notice!(
        "\nAnd all mechanisms together, on a network that is not here: 384 simulated nodes at 400 Gb/s run an application\n\
         with OpenSHMEM puts, timeslice building, a cast and a checkpoint, in one class and then in classes."
    );
    let report =
        ReportFlags { out: Some(directory.join("together")), overwrite: output.report.overwrite };
    let there = Output { report, ..output.clone() };
    let (_, together) = shipped("together", VenueKind::Sim, &there, shown)?;
    if shown.is_none() {
        let runs =
            [&directory, &together].map(|at| Ok((store::read(at, &presenters())?, at.clone())));
        let runs = runs.into_iter().collect::<Result<Vec<_>>>()?;
        print(&figure_text(&runs, output.format)?)?;
    }
    Ok(exit)
}

/// Runs a scenario that is shipped; how it went, and where its report is.
fn shipped(
    name: &str,
    place: VenueKind,
    output: &Output,
    shown: Option<FigureFormat>,
) -> Result<(Exit, PathBuf)> {
    let text = scenario::shipped(name).context("the program was built without its tour")?;
    let mut scenario =
        scenario::read_text(text, &registry::section_kinds()).map_err(|why| anyhow!("{why}"))?;
    let results = (ReportDestination::open(&scenario.name, &output.report)?, shown);
    scenario.seed = output.seed.unwrap_or(scenario.seed);
    let flags = output.seed.map(|_| "seed".to_owned()).into_iter().collect();
    measure(&scenario, text, &[place], flags, &results)
}

/// Runs a scenario from a file or from those that are shipped.
pub(crate) fn scenario(
    path: &Path,
    on: &[VenueKind],
    job: &JobArguments,
    output: &Output,
) -> Result<Exit> {
    let (scenario, text) = scenario::read_file(path, &registry::section_kinds())?;
    let job = JobFlags::from_arguments(Some(job));
    let on = job.places(on)?;
    run_and_report(scenario, &text, &on, &job, BTreeSet::new(), output)
}

/// Runs a congestion test made of flags.
pub(crate) fn bench(flags: &BenchFlags) -> Result<Exit> {
    let (mut scenario, set) = named_scenario(flags)?;
    let hosts = scenario.fabric.hosts().map_err(|why| UsageError::new(rate_words(&why)))?;
    fit(&mut scenario, hosts, &set).into_iter().for_each(|chosen| notice!("{chosen}"));
    if flags.congestors.contains(&CongestorKind::Program) && flags.programs.congestor_cmd.is_none()
    {
        wrong_usage!("--congestors program is a command of yours; --congestor-cmd names it");
    }
    let text = scenario.text().context("the flags make no scenario")?;
    scenario.check().map_err(|why| UsageError::new(rate_words(&flag_words(&why.to_string()))))?;
    if flags.print_scenario {
        print(&text)?;
        return Ok(Exit::Good);
    }
    let is_rate_given = flags.rate.is_some() || flags.trunk.is_some();
    let rate = if is_rate_given { HostRateSource::OfScenario } else { HostRateSource::OfSite };
    let programs = Programs::from_flags(&flags.programs);
    if let Some(test) = scenario.section_mut::<CongestionSection>() {
        test.programs.clone_from(&programs);
    }
    let job = JobFlags { rate, roles: RoleFitting::Fitted, given: Some(&flags.job) };
    let places = job.places(&flags.on)?;
    if let Some(test) = scenario.section_mut::<CongestionSection>() {
        test.policy = policy_of_test(flags, &places, test.congestor_class);
    }
    let Some(programs) = &programs else {
        return run_and_report(scenario, &text, &places, &job, set, &flags.output);
    };
    let needs_no_rank = programs.victim.is_some() && programs.congestor.is_some();
    match places[..] {
        [] if needs_no_rank => here(&scenario, &text, set, programs, &flags.output),
        [VenueKind::Cluster] if needs_no_rank => wrong_usage!(
            "two commands need no ranks: without --on they run on this machine, where mpirun and the like spread them"
        ),
        [] | [VenueKind::Lab | VenueKind::Cluster] => {
            run_and_report(scenario, &text, &places, &job, set, &flags.output)
        }
        _ => wrong_usage!(
            "a command of yours runs in a lab or on a cluster; the simulator has no machine for it"
        ),
    }
}

/// Returns what the policy of the site grants to the congestors of a test, which is not limited: it
/// measures what a class does; `None` where there is no policy, or only a simulated fabric.
fn policy_of_test(flags: &BenchFlags, places: &[VenueKind], class: Class) -> Option<String> {
    let is_simulated = match places {
        [] => flags.fabric.is_some(),
        places => places.iter().all(|place| *place == VenueKind::Sim),
    };
    let grant = if is_simulated { None } else { flags.policy.ask(("bench", None), class) }?;
    let sentence = format!("{}; a test is not limited, and uses {class}", grant.sentence());
    notice!("clearway: {}", escaped(&sentence));
    Some(sentence)
}

/// Runs two commands on this machine.
fn here(
    scenario: &Scenario,
    text: &str,
    flags: BTreeSet<String>,
    programs: &Programs,
    output: &Output,
) -> Result<Exit> {
    let mut scenario = scenario.clone();
    scenario.seed = output.seed.unwrap_or(scenario.seed);
    let results = (ReportDestination::open(&scenario.name, &output.report)?, Some(output.format));
    let complete = keeping(&results);
    let order = RunSpec { scenario: &scenario, text, flags, complete: complete.clone() };
    let report = kept(&complete, congestion::run_here(&order, programs))?;
    conclude(&report, &results).map(|(exit, _)| exit)
}

/// Runs, reports, and says how it went.
fn run_and_report(
    mut scenario: Scenario,
    text: &str,
    on: &[VenueKind],
    job: &JobFlags<'_>,
    mut flags: BTreeSet<String>,
    output: &Output,
) -> Result<Exit> {
    if let Some(seed) = output.seed {
        scenario.seed = seed;
        flags.insert("seed".to_owned());
    }
    let usual = match scenario.fabric {
        Fabric::Lab(_) => VenueKind::Lab,
        Fabric::Machine(_) => VenueKind::Sim,
        Fabric::Site(_) => VenueKind::Cluster,
    };
    let mut places: Vec<VenueKind> = if on.is_empty() { vec![usual] } else { on.to_vec() };
    places.sort_unstable();
    places.dedup();
    let mechanism = registry::mechanism_of(&scenario)?;
    for place in &places {
        let in_lab = if *place == VenueKind::Lab { scenario.in_lab() } else { None };
        let there = in_lab.as_ref().map_or(&scenario, |(scenario, _)| scenario);
        if let Some(why) = mechanism.refusal(there, *place) {
            wrong_usage!("{why}");
        }
    }
    if places.contains(&VenueKind::Cluster) {
        if places.len() > 1 {
            wrong_usage!(
                "--on cluster stands alone: its ranks are on other machines, with queues of their own"
            );
        }
        return run_job(&scenario, text, job, flags, output);
    }
    if job.given.is_some_and(|given| !given.wire.is_empty()) {
        wrong_usage!(
            "--wire is for --on cluster: ranks of a lab talk over UDP, and a simulated fabric is a wire of its own"
        );
    }
    // What cannot be written must not be measured first.
    let results = (ReportDestination::open(&scenario.name, &output.report)?, Some(output.format));
    measure(&scenario, text, &places, flags, &results).map(|(exit, _)| exit)
}

/// Runs `scenario` in each of `places`, in their order; how it went, and where its report is.
fn measure(
    scenario: &Scenario,
    text: &str,
    places: &[VenueKind],
    flags: BTreeSet<String>,
    results: &RunResults,
) -> Result<(Exit, PathBuf)> {
    let mut scenario = scenario.clone();
    let mut text = text.to_owned();
    let mut reports = Vec::new();
    let mechanism = registry::mechanism_of(&scenario)?;
    let complete = keeping(results);
    // The lab first: what it needs can be refused, and a refusal must not cost the time of a
    // simulation, whose hosts it calibrates.
    for place in places.iter().rev() {
        let (flags, complete) = (flags.clone(), complete.clone());
        let in_lab = if *place == VenueKind::Lab { scenario.in_lab() } else { None };
        let (scenario_there, text_there) =
            in_lab.as_ref().map_or((&scenario, &text), |(scenario, text)| (scenario, text));
        let order = RunSpec {
            scenario: scenario_there,
            text: text_there,
            flags,
            complete: complete.clone(),
        };
        let report = kept(&complete, run::run(&order, mechanism, *place))?;
        complete.place(&report);
        if *place == VenueKind::Lab && places.contains(&VenueKind::Sim) {
            text = scenario.calibrate(&text, congestion::small_messages(&report))?;
        }
        reports.push(report);
    }
    reports.reverse();
    let report = place_comparison::merge(reports, &presenters()).context("no place to run at")?;
    conclude(&report, results)
}

/// Keeps in `results` what is complete when the user interrupts.
fn keeping(results: &RunResults) -> CompletedParts {
    let results = results.clone();
    CompletedParts::new(move |reports| match place_comparison::merge(reports, &presenters()) {
        Some(report) => conclude(&report, &results).map(drop),
        None => Ok(()),
    })
}

/// Returns what came of a run; if that is the user's interrupt, what is `complete` is kept first.
fn kept(complete: &CompletedParts, run: Result<Report>) -> Result<Report> {
    if run.as_ref().is_err_and(|error| run::exit::exit_of(error) == Exit::Interrupted) {
        complete.keep()?;
    }
    run
}

/// Runs `scenario` on the ranks of a job.
fn run_job(
    scenario: &Scenario,
    text: &str,
    job: &JobFlags<'_>,
    flags: BTreeSet<String>,
    output: &Output,
) -> Result<Exit> {
    let order = job.order()?;
    let on_job = |ranks: u32, rate| {
        let mut scenario = scenario.clone();
        let chosen = (job.roles == RoleFitting::Fitted)
            .then(|| fit_job(&mut scenario, ranks, &flags))
            .flatten();
        scenario.on_job(ranks, rate).map_err(|why| anyhow!(why))?;
        Ok::<_, anyhow::Error>((scenario, chosen))
    };
    if let Some(hosts) = &order.hosts {
        // What cannot run on this many ranks is known before any is started.
        on_job(hosts.ranks(), None)?;
        ReportDestination::open(&scenario.name, &output.report)?;
    }
    across(&order, |site| {
        let (_, chosen) = on_job(site.size(), None)?;
        let mut text = text.to_owned();
        if let Some(chosen) = &chosen {
            notice!("{chosen}");
        }
        let results =
            (ReportDestination::open(&scenario.name, &output.report)?, Some(output.format));
        let mechanism = registry::mechanism_of(scenario)?;
        let mut venue = venue::open_job(Some(site), &mechanism.launch(scenario))?;
        let measured = match (job.rate, site.rate()) {
            (HostRateSource::OfSite, None) => Some(measure_rate(&mut venue, site)?),
            _ => None,
        };
        let rate = match job.rate {
            HostRateSource::OfScenario => None,
            HostRateSource::OfSite => site.rate().or(measured.map(|measured| measured.rate)),
        };
        let (scenario, _) = on_job(site.size(), rate)?;
        if chosen.is_some() {
            text = scenario.text().context("the chosen test makes no scenario")?;
        }
        let complete = keeping(&results);
        let order = RunSpec {
            scenario: &scenario,
            text: &text,
            flags: flags.clone(),
            complete: complete.clone(),
        };
        let mut report = kept(&complete, run::run_in(&order, mechanism, &mut venue))?;
        if let Some(measured) = measured {
            report.host.facts.insert("rate of host links".into(), measured.to_string());
        }
        conclude(&report, &results).map(|(exit, _)| exit)
    })
}

/// Measures how fast the host links of `site` are, and says it on standard error.
fn measure_rate(venue: &mut JobVenue, site: &CoordinatedJob) -> Result<MeasuredRate> {
    let measured =
        congestion::rate::measure(&mut congestion::PhaseRunner::new(venue), &site.hosts())
            .context("the interfaces do not say how fast they are; --rate does")?;
    notice!("host links: {measured}; --rate says it instead");
    Ok(measured)
}

/// Brings the ranks of a job together, as any run does first, and nothing more.
pub(crate) fn gather() -> Result<Exit> {
    across(&JobSpec::LAUNCHED, |site| {
        venue::open_job(Some(site), &LaunchSpec::new::<CongestionProtocol>(0)).map(|_| Exit::Good)
    })
}

/// Lets `run` coordinate the ranks of a job, if this process is the one that coordinates them;
/// follows otherwise.
pub(super) fn across(
    order: &JobSpec,
    run: impl FnOnce(&CoordinatedJob) -> Result<Exit>,
) -> Result<Exit> {
    let site = match run::job::join_or_start(order)? {
        JobRole::Follower(follower) => return follower.follow(),
        JobRole::Coordinator(site) => site,
    };
    if site.size() == 1 {
        let tried: String = site.notes().iter().map(|note| format!("\n  {note}")).collect();
        bail!(
            "--on cluster runs on the ranks that a launcher starts, and none did: mpirun -n 16 clearway ..., or name hosts \
             with --hostfile{tried}"
        );
    }
    match run(&site) {
        Ok(exit) => site.leave().map(|()| exit),
        Err(error) => site.abort(run::exit::exit_of(&error), &error),
    }
}

/// Where the report of a run goes, and in which form it is shown, if it is.
type RunResults = (ReportDestination, Option<FigureFormat>);

/// Writes `report` where `results` go and shows it; how the run went, and where the report is.
fn conclude(report: &Report, (results, shown): &RunResults) -> Result<(Exit, PathBuf)> {
    let directory = results.write(report)?;
    match shown {
        Some(format) if format.is_for_programs() => {
            print(&figure_text(&[(report.clone(), directory.clone())], *format)?)?;
        }
        Some(_) => show(report, &directory)?,
        None => {}
    }
    Ok((exit_of(report), directory))
}

/// Returns colours for a person who wants them (<https://no-color.org>).
fn paint() -> ColourMode {
    let wanted = io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted { ColourMode::Colour } else { ColourMode::Plain }
}

/// Prints the tables of `report` and where its page is.
fn show(report: &Report, directory: &Path) -> Result<()> {
    print(&format!(
        "{}{}\n",
        terminal::render(report, &presenters(), paint()),
        directory.join("report.html").display()
    ))
}

fn exit_of(report: &Report) -> Exit {
    match report.verdict.as_ref().map(|verdict| verdict.outcome) {
        None | Some(RunOutcome::Contained) => Exit::Good,
        Some(RunOutcome::Congested) => Exit::Findings,
        Some(RunOutcome::Invalid) => Exit::Invalid,
    }
}

/// The fields that a JSON document of a run has in addition to its figures.
#[derive(Serialize)]
struct RunDocument<'a> {
    report: String,
    place: &'a str,
    verdict: &'a Option<Verdict>,
    warnings: &'a [String],
}

impl<'a> RunDocument<'a> {
    fn new((report, at): &'a (Report, PathBuf)) -> Self {
        Self {
            report: at.join(store::JSON_NAME).display().to_string(),
            place: &report.place,
            verdict: &report.verdict,
            warnings: &report.warnings,
        }
    }
}

/// Returns the figures of `runs` in `format`; those of several have the label `run`, the directory.
fn figure_text(runs: &[(Report, PathBuf)], format: FigureFormat) -> Result<String> {
    let figures: Vec<Figure> = runs
        .iter()
        .flat_map(|(report, at)| report.figures.iter().cloned().map(move |figure| (figure, at)))
        .map(|(figure, at)| match runs.len() {
            1 => figure,
            _ => figure.with("run", at.display().to_string()),
        })
        .collect();
    let more = BTreeMap::from([("runs", runs.iter().map(RunDocument::new).collect::<Vec<_>>())]);
    format.text(&figures, &more, String::new)
}

/// Makes pages again and prints their tables, or their figures.
pub(crate) fn report(directories: &[PathBuf], format: FigureFormat) -> Result<Exit> {
    let mut runs = Vec::new();
    for directory in directories {
        let directory = store::newest(directory);
        let report = store::render_again(&directory, &presenters())?;
        if format.is_for_programs() {
            runs.push((report, directory));
        } else {
            show(&report, &directory)?;
        }
    }
    if format.is_for_programs() {
        print(&figure_text(&runs, format)?)?;
    }
    Ok(Exit::Good)
}

/// Compares two runs.
pub(crate) fn diff([a, b]: [&Path; 2], format: FigureFormat) -> Result<Exit> {
    let (a, b) = (store::read(a, &presenters())?, store::read(b, &presenters())?);
    let comparison = diff::compare(&a, &b, &presenters());
    let (figures, changes) = comparison.for_programs();
    print(&format.text(&figures, &changes, || diff::render(&comparison, paint()))?)?;
    Ok(match comparison.result {
        diff::DiffResult::SameOrBetter => Exit::Good,
        diff::DiffResult::Worse => Exit::Findings,
    })
}

/// Names the flag of a rate that a lab cannot have.
fn rate_words(why: &str) -> String {
    why.replacen("the host links", "--rate: the host links", 1).replacen(
        "the trunk",
        "--trunk: the trunk",
        1,
    )
}

/// Says what is wrong with a scenario in the words of the flags that made it.
fn flag_words(why: &str) -> String {
    const FLAGS: [(&str, &str); 14] = [
        ("isolated", "--time"),
        ("congested", "--time"),
        ("intensity-percent", "--intensity"),
        ("bursts", "--bursts"),
        ("victim-hosts", "--victim-hosts"),
        ("victim-class", "--victim-class"),
        ("congestor-hosts", "--congestor-hosts"),
        ("congestor-groups", "--congestor-groups"),
        ("congestor-class", "--congestor-class"),
        ("draws", "--draws"),
        ("null-runs", "--null-runs"),
        ("loaded-runs", "--loaded-runs"),
        ("queues", "--queues"),
        ("slowdown-max", "--slowdown-max"),
    ];
    let why = why.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1)).unwrap_or(why);
    let words = why.split(' ').enumerate().map(|(place, word)| {
        // Within a sentence, a word without a hyphen may be a word.
        let flag = FLAGS.iter().find(|(key, _)| *key == word);
        flag.filter(|(key, _)| place == 0 || key.contains('-')).map_or(word, |(_, flag)| *flag)
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the scenario that `flags` make, and which parameters they set.
fn named_scenario(flags: &BenchFlags) -> Result<(Scenario, BTreeSet<String>)> {
    let (fabric, mut test, mut set) = on_fabric(flags)?;
    let mut list = |name: &str, given: bool| {
        if given {
            set.insert(format!("congestion.{name}"));
        }
        given
    };
    if list("queues", !flags.queues.is_empty()) {
        test.queues.clone_from(&flags.queues);
    }
    if list("victims", !flags.victims.is_empty()) {
        test.victims.clone_from(&flags.victims);
    }
    if list("congestors", !flags.congestors.is_empty()) {
        test.congestors.clone_from(&flags.congestors);
    }
    if list("congestors", flags.programs.congestor_cmd.is_some()) {
        test.congestors = vec![CongestorKind::Program];
        test.groups = GroupGrowth::Fixed;
    }
    if list("intensity-percent", !flags.intensity.is_empty()) {
        test.intensity_percent.clone_from(&flags.intensity);
    }
    if list("bursts", !flags.bursts.is_empty()) {
        test.bursts.clone_from(&flags.bursts);
    }
    fn take<T: Copy>(into: &mut T, value: Option<T>) -> bool {
        value.inspect(|value| *into = *value).is_some()
    }
    list("victim-class", take(&mut test.victim_class, flags.victim_class));
    list("congestor-class", take(&mut test.congestor_class, flags.congestor_class));
    list("victim-hosts", take(&mut test.victim_hosts, flags.victim_hosts));
    list("congestor-hosts", take(&mut test.congestor_hosts, flags.congestor_hosts));
    list("groups", take(&mut test.groups, flags.groups));
    list("congestor-groups", take(&mut test.congestor_groups, flags.congestor_groups));
    list("draws", take(&mut test.draws, flags.draws));
    list("null-runs", take(&mut test.null_runs, flags.null_runs));
    list("loaded-runs", take(&mut test.loaded_runs, flags.loaded_runs));
    list("isolated", take(&mut test.isolated, flags.time));
    list("congested", take(&mut test.congested, flags.time));
    let mut scenario = Scenario::new("bench", "A congestion test made of flags.", fabric, test);
    if let Some(limit) = flags.programs.slowdown_max {
        scenario.verdict.slowdown_max = limit;
        set.insert("verdict.slowdown-max".to_owned());
    }
    Ok((scenario, set))
}

/// Returns the fabric that `flags` name with the test that is usual on it, and which parameters
/// that sets.
fn on_fabric(flags: &BenchFlags) -> Result<(Fabric, CongestionSection, BTreeSet<String>)> {
    let mut fabric = Fabric::lab(topology_of(flags.hosts, flags.rate, flags.trunk));
    let mut test = CongestionSection::default();
    if let Some(preset) = &flags.fabric {
        fabric = Fabric::machine(preset.clone(), flags.nodes);
        test =
            CongestionSection::usual(&fabric).map_err(|why| UsageError::new(rate_words(&why)))?;
        test.apply_defaults(&mut fabric, &DeTable::new())
            .map_err(|why| anyhow!("[fabric]: {why}"))?;
        let is_shaped = flags.congestor_hosts.is_some()
            || flags.congestor_groups.is_some()
            || !flags.congestors.is_empty();
        if is_shaped && flags.groups.is_none() && test.groups == GroupGrowth::Growing {
            // A choice of congestors is one of their size, too.
            let CongestionSection { groups, congestor_hosts, .. } = CongestionSection::default();
            test = CongestionSection { groups, congestor_hosts, ..test };
        }
    } else if flags.trunk.is_some() {
        // Victims and congestors meet on the trunk, so they need not share hosts.
        test = CongestionSection {
            placement: Placement::Disjoint,
            victim_hosts: 4,
            congestor_hosts: 6,
            congestor_groups: 2,
            congestors: vec![CongestorKind::Alltoall],
            intensity_percent: vec![100],
            victim_interval: scenario::Time::micros(2000),
            ..test
        };
    }
    let given = [
        (flags.hosts.is_some(), "topology.hosts"),
        (flags.rate.is_some(), "topology.rate"),
        (flags.trunk.is_some(), "topology.trunk"),
        (flags.fabric.is_some(), "preset"),
        (flags.nodes.is_some(), "nodes"),
    ];
    let set = given
        .into_iter()
        .filter(|(given, _)| *given)
        .map(|(_, key)| format!("fabric.{key}"))
        .collect();
    Ok((fabric, test, set))
}

/// Makes the congestion test of `scenario` smaller where it has no room on this many `hosts`, but
/// for the parameters that are `given` (`congestion.draws`). Says what it chose, if anything.
fn fit(scenario: &mut Scenario, hosts: u32, given: &BTreeSet<String>) -> Option<String> {
    scenario
        .section_mut::<CongestionSection>()?
        .fit(hosts, |key| given.contains(&format!("congestion.{key}")))
}

/// Does the same on the hosts of a job: few get groups that grow.
fn fit_job(scenario: &mut Scenario, hosts: u32, given: &BTreeSet<String>) -> Option<String> {
    let test = scenario.section_mut::<CongestionSection>()?;
    let is_given = |key: &str| given.contains(&format!("congestion.{key}"));
    if test.programs.is_none()
        && let Some(chosen) = test.grow(hosts, is_given)
    {
        return Some(chosen);
    }
    test.fit(hosts, is_given)
}

/// Returns the laboratory of the flags `--hosts`, `--rate` and `--trunk`.
pub(super) fn topology_of(
    hosts: Option<u32>,
    rate: Option<BitsPerSec>,
    trunk: Option<BitsPerSec>,
) -> Topology {
    let mega = BitsPerSec::mega;
    match trunk {
        None => Topology::Star { hosts: hosts.unwrap_or(8), rate: rate.unwrap_or(mega(100)) },
        Some(trunk) => Topology::TwoSwitch {
            hosts: hosts.unwrap_or(16),
            rate: rate.unwrap_or(mega(25)),
            trunk,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_words__a_sentence_names_the_flag_and_not_the_key() {
        for (why, words) in [
            (
                "[congestion]: isolated is 1ms; 1200ms to 600s work",
                "--time is 1ms; 1200ms to 600s work",
            ),
            (
                "[congestion]: they need 5 hosts; asked for: victim-hosts 2, congestor-groups 1",
                "they need 5 hosts; asked for: --victim-hosts 2, --congestor-groups 1",
            ),
            ("[fabric]: the queues of isolated hosts", "the queues of isolated hosts"),
            ("no section", "no section"),
        ] {
            assert_eq!(flag_words(why), words);
        }
    }
}
