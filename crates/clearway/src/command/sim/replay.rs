//! Runs a kept failure again, tells what happens, and says whether it is still there.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::escaped;
use clearway_sim::Picos;
use clearway_sim::check::{Failure, Symptom, Trial};

use crate::command::print;
use crate::run::exit::Exit;
use crate::run::{RemainingTime, notice, reached};

/// A failure is a page of text; a megabyte is somebody else's file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Replays the failure in `file`, printing events up to number `until`, or all.
pub(super) fn replay(file: &Path, until: Option<u64>) -> Result<Exit> {
    let shown = file.display().to_string();
    let failure = Failure::parse(&shown, &read(file)?)?;
    let mut page = heading(&failure);
    let mut events = 0u64;
    // Where two ways to compute differ, both are tried after the run.
    let runs = if failure.violation.symptom == Symptom::Differs { 3 } else { 1 };
    let remaining = RemainingTime::begin("run", vec![1.0; runs], None);
    remaining.part(escaped(&shown));
    let outcome = failure.replay(&mut |at, what| {
        events += 1;
        reached(at.0, failure.violation.at.0);
        if until.is_none_or(|until| events <= until) {
            // Writing to a `String` cannot fail.
            let _ = writeln!(page, "{events:>6}  {:>14}  {what}", micros(at));
        }
    })?;
    drop(remaining);
    if let Some(until) = until.filter(|until| *until < events) {
        let _ = writeln!(page, "   ...  {} more events after {until}", events - until);
    }
    print(&page)?;
    let (looks, same) = (outcome.trail.len(), failure.agrees_for(&outcome.trail));
    if same < failure.trail.len().min(looks) {
        notice!(
            "clearway: the run parts from the kept one at look {same} of {looks}; the code has changed since {}",
            failure.commit
        );
    }
    match outcome.violation {
        Some(found) if found.symptom == failure.violation.symptom => {
            print(&format!(
                "reproduced: {:?} at {}: {}\n",
                found.symptom,
                micros(found.at),
                found.sentence
            ))?;
            Ok(Exit::Good)
        }
        Some(found) => bail!(
            "{shown}: not reproduced: {:?} was expected, but there is {:?}: {}",
            failure.violation.symptom,
            found.symptom,
            found.sentence
        ),
        None => bail!(
            "{shown}: not reproduced: {:?} was expected, and every check holds",
            failure.violation.symptom
        ),
    }
}

fn heading(failure: &Failure) -> String {
    let Trial { seed, spec, plan, ranks, operations, .. } = &failure.trial;
    let mut page = format!(
        "seed {seed}, {ranks} ranks with {operations} operations each on {} hosts, {} faults; kept at commit {}\n",
        spec.topology.hosts(),
        plan.faults.len(),
        failure.commit
    );
    for fault in &plan.faults {
        let _ = writeln!(
            page,
            "  {} to {}  {}: {:?}",
            micros(fault.at),
            micros(fault.until),
            fault.target,
            fault.kind
        );
    }
    let _ = writeln!(
        page,
        "expected: {:?}: {}\n",
        failure.violation.symptom, failure.violation.sentence
    );
    page
}

/// Returns microseconds, to the picosecond.
fn micros(at: Picos) -> String {
    format!("{}.{:06} us", at.0 / 1_000_000, at.0 % 1_000_000)
}

fn read(file: &Path) -> Result<String> {
    let shown = file.display();
    let mut text = String::new();
    let opened = fs::File::open(file).with_context(|| format!("{shown}"))?;
    opened
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .with_context(|| format!("{shown}: no text"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{shown}: larger than {FILE_BYTES_MAX} bytes, which no failure is");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clearway_sim::check::{Symptom, Violation};
    use clearway_sim::fault::{Fault, FaultKind};
    use clearway_sim::spec::LossDomain;

    use super::*;

    /// Returns what replaying a failure says that expects `symptom` of a trial whose credits leak
    /// (or not).
    fn replay_outcome(name: &str, faults: Vec<Fault>, symptom: Symptom) -> Result<Exit> {
        let mut trial = lossless();
        trial.plan.faults = faults;
        let violation = Violation { symptom, at: Picos(1), sentence: "as it was".to_owned() };
        let failure = Failure { trial, violation, commit: "none".to_owned(), trail: Vec::new() };
        let file = std::env::temp_dir()
            .join(format!("clearway-replay-{}-{name}.toml", std::process::id()));
        fs::write(&file, failure.to_text()).unwrap();
        let said = replay(&file, Some(3));
        fs::remove_file(&file).unwrap();
        said
    }

    /// Returns a trial on a network with credits.
    fn lossless() -> Trial {
        let credits = |trial: &Trial| trial.spec.classes.loss[0] == LossDomain::Credits;
        (0..100).map(Trial::draw).find(credits).unwrap()
    }

    fn leak() -> Vec<Fault> {
        let trial = lossless();
        let target = format!("n0 -> {}", first_switch(&trial));
        let kind = FaultKind::LostCredit { class: clearway_proto::base::Class::Bulk, bytes: 100 };
        vec![Fault { at: Picos::from_micros(1), until: Picos::from_micros(1 << 40), target, kind }]
    }

    fn first_switch(trial: &Trial) -> String {
        let graph = clearway_sim::topology::build(&trial.spec).unwrap().graph;
        let port = graph.ports(clearway_sim::graph::DeviceId(0)).start;
        graph.name(graph.channel(clearway_sim::graph::ChannelId(port)).to).to_owned()
    }

    #[test]
    fn replay__what_is_still_there_is_good_and_what_is_not_is_said() {
        assert_eq!(replay_outcome("leak", leak(), Symptom::Leak).unwrap(), Exit::Good);
        let other = replay_outcome("other", leak(), Symptom::Twice).unwrap_err().to_string();
        assert!(other.contains("not reproduced: Twice was expected, but there is Leak"), "{other}");
        let dead_ranks = replay_outcome("gone", Vec::new(), Symptom::Leak).unwrap_err().to_string();
        assert!(dead_ranks.contains("every check holds"), "{dead_ranks}");
    }
}
