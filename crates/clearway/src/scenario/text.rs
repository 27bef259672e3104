//! Reads scenario text, and says in one sentence what is wrong with it, where, and what would work.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::Scenario;

/// A scenario is a page of text; a megabyte is somebody's log file.
const FILE_MAX: u64 = 1 << 20;

/// Reads a scenario file, or a shipped scenario by its name. Returns it with its text.
///
/// # Errors
/// One sentence about the first thing that is wrong.
pub(crate) fn read_file(path: &Path) -> Result<(Scenario, String)> {
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
                let why = other.err().map_or_else(|| "is a directory".to_owned(), |error| error.to_string());
                bail!("{shown}: {why}; give a file, or one of the shipped scenarios: {names}");
            }
        },
    };
    let scenario = read_text(&text).map_err(|why| anyhow!("{shown}: {why}"))?;
    Ok((scenario, text))
}

/// Reads and checks a scenario.
///
/// # Errors
/// One sentence, with the line where there is one.
pub(crate) fn read_text(text: &str) -> Result<Scenario, String> {
    check_keys(text)?;
    let mut scenario: Scenario = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        format!("{place}{}", error.message().replace('\n', "; "))
    })?;
    scenario.settle(&text.parse().unwrap_or_default())?;
    scenario.check()?;
    Ok(scenario)
}

/// The keys of each table. The types below them refuse what is missing here; this list can name the nearest.
const KEYS: [(&str, &[&str]); 10] = [
    ("", &["name", "about", "seed", "fabric", "congestion", "shares", "timeslice", "broadcast", "verdict"]),
    ("fabric", &["topology", "queue-packets", "weights", "small-message", "preset", "nodes", "node-map"]),
    ("fabric.topology", &["kind", "hosts", "rate", "trunk", "leaves", "hosts-per-leaf", "spines", "uplink"]),
    ("fabric.weights", &["control", "low-latency", "best-effort", "bulk", "scavenger"]),
    ("fabric.small-message", &["fifo", "strict", "weighted", "vlarb"]),
    (
        "congestion",
        &[
            "queues",
            "victims",
            "victim-hosts",
            "victim-class",
            "victim-interval",
            "congestors",
            "congestor-hosts",
            "congestor-groups",
            "congestor-class",
            "intensity-percent",
            "processes-per-host",
            "placement",
            "draws",
            "slice",
            "isolated",
            "congested",
            "null-control",
        ],
    ),
    ("broadcast", &["queue", "bytes", "loss", "modes", "modes-up-to", "ranks", "also", "objects", "silence"]),
    (
        "timeslice",
        &[
            "queue",
            "inputs",
            "policies",
            "contribution",
            "ring",
            "rings",
            "window",
            "interval",
            "history",
            "speed-up-percent",
            "start-skew",
            "warm-up",
            "measured",
            "seeds",
            "node-rate",
            "rate-spread-per-mille",
            "interruption-period",
            "interruption-length",
            "packet",
            "drop-percent",
            "drop-from",
            "drop-length",
        ],
    ),
    ("shares", &["queues", "classes", "offered-percent", "slice", "measured"]),
    (
        "verdict",
        &[
            "factor-max",
            "null-low",
            "null-high",
            "congestor-share-min",
            "overload-min",
            "noise-ratio",
            "delay-ratio",
            "slowdown-max",
        ],
    ),
];

/// Refuses keys that nothing reads, with the nearest that something does.
fn check_keys(text: &str) -> Result<(), String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Ok(()) };
    check_table(&table, "", text)
}

fn check_table(table: &toml::Table, path: &str, text: &str) -> Result<(), String> {
    let Some((_, known)) = KEYS.iter().find(|(name, _)| *name == path) else { return Ok(()) };
    for (key, value) in table {
        if !known.contains(&key.as_str()) {
            let line = text.lines().position(|line| line.trim_start().trim_start_matches('[').contains(key.as_str()));
            let place = line.map_or_else(String::new, |line| format!("line {}: ", line + 1));
            let room = if path.is_empty() { "a scenario".to_owned() } else { format!("[{path}]") };
            let nearest = crate::command::nearest(key, known);
            return Err(format!("{place}unknown key `{key}` in {room}; {nearest}"));
        }
        if let toml::Value::Table(inner) = value {
            let inner_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            check_table(inner, &inner_path, text)?;
        }
    }
    Ok(())
}
