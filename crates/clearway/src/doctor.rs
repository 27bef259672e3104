//! Tells what this machine can do and what is missing, each with its remedy: proven by doing it
//! wherever that is possible.
//!
//! # Model
//! Sections of findings, one after the other; on a terminal each is shown as soon as it is known.
//! The processors come first, before the other examinations load them. A missing permission ends
//! nothing: what needs no lab is reported all the same.
//!
//! # Invariants
//! I1. Permission is asked for before any thread starts.
//! I2. What was not tried is never called ok.

#![cfg_attr(test, allow(non_snake_case))]

mod fabric;
mod finding;
mod lab;
mod launch;
mod libraries;
mod machine;
mod marking;
mod node;
mod pair;
mod processors;
mod sheet;
mod transport;

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Result;
use clearway_lab::{LabError, permission};
use serde::Serialize;

use self::fabric::{Provider, WireClasses};
use self::finding::{FindingGroup, Status};
use self::marking::MarkTest;
use self::node::RulesOf;
use crate::report::terminal::ColourMode;
use crate::run::exit::Exit;
use crate::run::{json_text, print};

/// The form of the JSON document; a change that readers notice gets the next number.
const SCHEMA: &str = "clearway-doctor/1";
/// That of an examination of the node alone.
const NODE_SCHEMA: &str = "clearway-doctor-node/1";

/// How the findings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// For a person.
    Text,
    /// For a program.
    Json,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Diagnosis {
    schema: &'static str,
    version: &'static str,
    /// Whether a lab can be made here.
    lab: bool,
    sections: Vec<FindingGroup>,
    marks: Vec<MarkTest>,
    /// What the wires make of the classes asked for.
    classes: Vec<WireClasses>,
    /// What libfabric offers, the best first.
    providers: Vec<Provider>,
}

/// What was found of the node.
#[derive(Debug, Serialize)]
struct NodeDiagnosis<'s> {
    schema: &'static str,
    version: &'static str,
    sections: &'s [FindingGroup],
}

impl Diagnosis {
    /// Returns how many findings of all sections have this status.
    fn count(&self, status: Status) -> usize {
        self.sections
            .iter()
            .flat_map(|section| &section.findings)
            .filter(|finding| finding.status == status)
            .count()
    }
}

/// Examines this machine and writes what it found in `form`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn command(form: OutputFormat) -> Result<Exit> {
    let probe = permission::probe();
    let permission = permission::acquire();
    let writer = FindingsWriter::new(form);
    let mut diagnosis = Diagnosis {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        lab: false,
        sections: Vec::new(),
        marks: Vec::new(),
        classes: Vec::new(),
        providers: Vec::new(),
    };
    let mut tell = |section: FindingGroup| -> Result<()> {
        writer.text(|paint| sheet::section(&section, paint))?;
        diagnosis.sections.push(section);
        Ok(())
    };
    tell(processors::examine())?;
    let (loopback, loopback_marks) = transport::examine();
    tell(loopback)?;
    let lab = lab::examine(permission, &probe);
    tell(lab.section)?;
    let wires = fabric::examine();
    tell(wires.section)?;
    tell(launch::examine())?;
    let mut libraries = libraries::examine();
    if !wires.providers.is_empty() {
        // It was loaded and said more than its file does.
        libraries.findings.retain(|finding| finding.item != fabric::LIBRARY);
    }
    tell(libraries)?;
    tell(machine::examine())?;
    diagnosis.marks = [lab.marks, loopback_marks].concat();
    diagnosis.lab = lab.refusal.is_none();
    (diagnosis.classes, diagnosis.providers) = (wires.classes, wires.providers);
    writer.text(|_| sheet::providers(&diagnosis.providers))?;
    writer.text(|_| sheet::classes(&diagnosis.classes))?;
    writer.text(|_| sheet::marks(&diagnosis.marks))?;
    writer.text(|_| sheet::verdict(&diagnosis))?;
    writer.json(&diagnosis)?;
    Ok(exit_of(lab.refusal.as_ref()))
}

/// Examines whether this node is set up as its site wants, by the policy that is `named` or that of
/// the site; `rules` makes the packet filter's rules of a policy.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn node(form: OutputFormat, named: Option<&Path>, rules: RulesOf<'_>) -> Result<Exit> {
    let writer = FindingsWriter::new(form);
    let sections = node::examine(named, rules);
    for section in &sections {
        writer.text(|paint| sheet::section(section, paint))?;
    }
    let findings = || sections.iter().flat_map(|section| &section.findings);
    let exit = severity(findings().map(|finding| finding.status));
    let document = NodeDiagnosis {
        schema: NODE_SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        sections: &sections,
    };
    writer.json(&document)?;
    Ok(exit)
}

/// Returns the exit status of the worst of these.
fn severity(statuses: impl Iterator<Item = Status>) -> Exit {
    statuses.fold(Exit::Good, |worst, status| match (worst, status) {
        (_, Status::Missing) | (Exit::Failed, _) => Exit::Failed,
        (_, Status::Limited) => Exit::Findings,
        (worst, Status::Ok) => worst,
    })
}

fn exit_of(refusal: Option<&LabError>) -> Exit {
    match refusal {
        None => Exit::Good,
        Some(LabError::Permission(_)) => Exit::NoPermission,
        Some(_) => Exit::Failed,
    }
}

/// Standard output in the form asked for.
struct FindingsWriter {
    form: OutputFormat,
    paint: ColourMode,
}

impl FindingsWriter {
    fn new(form: OutputFormat) -> Self {
        let colour = io::stdout().is_terminal()
            && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { form, paint: if colour { ColourMode::Colour } else { ColourMode::Plain } }
    }

    fn text(&self, make: impl FnOnce(ColourMode) -> String) -> Result<()> {
        match self.form {
            OutputFormat::Text => print(&make(self.paint)),
            OutputFormat::Json => Ok(()),
        }
    }

    fn json(&self, diagnosis: &impl Serialize) -> Result<()> {
        match self.form {
            OutputFormat::Text => Ok(()),
            OutputFormat::Json => print(&json_text(diagnosis)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severity__is_that_of_the_worst() {
        let of = |statuses: &[Status]| severity(statuses.iter().copied());
        assert_eq!(of(&[]), Exit::Good);
        assert_eq!(of(&[Status::Ok, Status::Ok]), Exit::Good);
        assert_eq!(of(&[Status::Limited, Status::Ok]), Exit::Findings);
        assert_eq!(of(&[Status::Missing, Status::Limited]), Exit::Failed);
    }

    #[test]
    fn exit__tells_a_missing_permission_from_a_kernel_that_cannot() {
        assert_eq!(exit_of(None), Exit::Good);
        assert_eq!(exit_of(Some(&LabError::Permission("no".into()))), Exit::NoPermission);
        assert_eq!(exit_of(Some(&LabError::NotUp("doctor".into()))), Exit::Failed);
    }
}
