//! Reads scenario text, and says in one sentence what is wrong with it, where, and what would work.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clearway_lab::{QueueKind, Weights};
use clearway_proto::congestion::Rules;
use serde::Deserialize;
use toml::de::{DeTable, Error};

use super::section::{SectionKind, keys_of};
use super::{Fabric, Scenario, nearest};

/// A scenario is a page of text; a megabyte is somebody's log file.
const FILE_MAX: u64 = 1 << 20;
/// The table of what differs in a laboratory.
const LAB: &str = "lab";
/// The seed of a scenario that names none.
pub(super) const SEED: u64 = 1;

/// Reads a scenario file with a section of one of `kinds`, or a shipped scenario by its name.
/// Returns it with its text.
///
/// # Errors
/// One sentence about the first thing that is wrong.
pub(crate) fn read_file(path: &Path, kinds: &[SectionKind]) -> Result<(Scenario, String)> {
    let shown = path.display();
    let text = match fs::File::open(path) {
        Ok(file) if !path.is_dir() => {
            let mut text = String::new();
            let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
            read.with_context(|| format!("{shown}: cannot be read as text"))?;
            if text.len() as u64 > FILE_MAX {
                bail!("{shown}: larger than {FILE_MAX} bytes, which no scenario is");
            }
            text
        }
        other => match path.to_str().and_then(super::shipped) {
            Some(text) => text.to_owned(),
            None => {
                let names = super::shipped_names();
                let why = other
                    .err()
                    .map_or_else(|| "is a directory".to_owned(), |error| error.to_string());
                bail!("{shown}: {why}; give a file, or one of the shipped scenarios: {names}");
            }
        },
    };
    let scenario = read_text(&text, kinds).map_err(|why| anyhow!("{shown}: {why}"))?;
    Ok((scenario, text))
}

/// Reads and checks a scenario with a section of one of `kinds`.
///
/// # Errors
/// One sentence, with the line where there is one.
pub(crate) fn read_text(text: &str, kinds: &[SectionKind]) -> Result<Scenario, String> {
    let placed = |error: Error| {
        let place = error.span().map_or_else(String::new, |span| place(text, span.start));
        format!("{place}{}", error.message().replace('\n', "; "))
    };
    let given = DeTable::parse(text).map_err(placed)?;
    check_table(given.get_ref(), "", text, kinds)?;
    let in_lab = match lab_text(given.get_ref(), text)? {
        Some(text) => {
            let scenario = read_text(&text, kinds).map_err(|why| format!("with [{LAB}]: {why}"))?;
            Some(Box::new((scenario, text)))
        }
        None => None,
    };
    let mut rest = given.clone();
    rest.get_mut().remove(LAB);
    let mut sections =
        kinds.iter().filter_map(|kind| Some((kind, rest.get_mut().remove(kind.name)?)));
    let (first, second) = (sections.next(), sections.next());
    drop(sections);
    let ScenarioHeader { name, about, seed, fabric, verdict } =
        ScenarioHeader::deserialize(toml::Deserializer::from(rest)).map_err(placed)?;
    let (kind, value) = match (first, second) {
        (Some(section), None) => section,
        (None, _) => {
            return Err(format!("there is nothing to run: add a table {}", names(kinds, "or")));
        }
        (Some(_), Some(_)) => {
            return Err(format!("there are two mechanisms: keep one of {}", names(kinds, "and")));
        }
    };
    let section = (kind.parse)(value).map_err(placed)?;
    let mut scenario = Scenario { name, about, seed, fabric, section, verdict, in_lab };
    // What is usual on a fabric is asked of one that can be.
    scenario.check_head()?;
    scenario
        .section
        .apply_defaults(&mut scenario.fabric, given.get_ref())
        .map_err(|why| format!("[fabric]: {why}"))?;
    scenario.check_section()?;
    Ok(scenario)
}

/// Returns the text of a scenario in a laboratory: `text` with each table below `[lab]` in place of
/// the table of the same name. `None` if `given`, which is the same text, has no `[lab]`.
///
/// # Errors
/// One sentence: `[lab]` holds a key that is not a table, or the text a seed of 64 bits.
fn lab_text(given: &DeTable<'_>, text: &str) -> Result<Option<String>, String> {
    // Scenarios without [lab] must not pass through a `toml::Table`, which refuses seeds of 64
    // bits.
    if !given.contains_key(LAB) {
        return Ok(None);
    }
    let mut all: toml::Table =
        text.parse().map_err(|error: Error| error.message().replace('\n', "; "))?;
    let Some(of_lab) = all.remove(LAB) else { return Ok(None) };
    let toml::Value::Table(of_lab) = of_lab else {
        return Err(format!("`{LAB}` is a table: [{LAB}.fabric]"));
    };
    if let Some((name, _)) = of_lab.iter().find(|(name, value)| !value.is_table() || *name == LAB) {
        return Err(format!("[{LAB}]: `{name}` cannot differ; tables such as [{LAB}.fabric] can"));
    }
    all.extend(of_lab);
    toml::to_string(&all).map(Some).map_err(|error| error.to_string())
}

/// Returns the tables of `kinds`, for a sentence.
fn names(kinds: &[SectionKind], last: &str) -> String {
    let names: Vec<String> = kinds.iter().map(|kind| format!("[{}]", kind.name)).collect();
    match names.split_last() {
        Some((end, start)) if !start.is_empty() => format!("{} {last} {end}", start.join(", ")),
        _ => names.concat(),
    }
}

/// What every scenario has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioHeader {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default = "usual_seed")]
    seed: u64,
    fabric: Fabric,
    #[serde(default)]
    verdict: Rules,
}

fn usual_seed() -> u64 {
    SEED
}

/// The keys of a topology, which differ by its kind.
const TOPOLOGY: [&str; 8] =
    ["kind", "hosts", "rate", "trunk", "leaves", "hosts-per-leaf", "spines", "uplink"];

/// Returns the keys of the table at `path`; nothing where any are read, or another check refuses
/// them.
fn keys(path: &str, kinds: &[SectionKind]) -> Option<Vec<&'static str>> {
    Some(match path {
        "" => {
            let (verdict, head) = keys_of::<ScenarioHeader>().split_last()?;
            head.iter()
                .copied()
                .chain(kinds.iter().map(|kind| kind.name))
                .chain([*verdict, LAB])
                .collect()
        }
        "fabric" => keys_of::<Fabric>().to_vec(),
        "fabric.topology" => TOPOLOGY.to_vec(),
        "fabric.weights" => keys_of::<Weights>().to_vec(),
        "fabric.small-message" => QueueKind::ALL.map(|kind| kind.name()).to_vec(),
        "verdict" => keys_of::<Rules>().to_vec(),
        name => (kinds.iter().find(|kind| kind.name == name)?.keys)().to_vec(),
    })
}

/// Refuses keys that nothing reads, with the nearest that something does.
fn check_table(
    table: &DeTable<'_>,
    path: &str,
    text: &str,
    kinds: &[SectionKind],
) -> Result<(), String> {
    let Some(known) = keys(path, kinds) else { return Ok(()) };
    for (key, value) in table {
        let name: &str = key.get_ref();
        if !known.contains(&name) {
            let place = place(text, key.span().start);
            let room = if path.is_empty() { "a scenario".to_owned() } else { format!("[{path}]") };
            return Err(format!(
                "{place}unknown key `{name}` in {room}; {}",
                nearest(name, &known)
            ));
        }
        if let Some(inner) = value.get_ref().as_table() {
            let inner_path =
                if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            check_table(inner, &inner_path, text, kinds)?;
        }
    }
    Ok(())
}

/// Returns the line of the byte at `at`, as the beginning of a sentence.
fn place(text: &str, at: usize) -> String {
    format!("line {}: ", line_of(text, at))
}

/// Returns the number of the line of the byte at `at`, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].split(|byte| *byte == b'\n').count()
}
