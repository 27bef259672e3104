//! Whether the ports of a network have what was planned: asked of each by `smpquery`, or read from
//! what it said before.
//!
//! # Model
//! A port is asked for the lanes of the levels (`sl2vl`), both tables (`vlarb`) and the limit of the
//! high one (`portinfo`). Entries without weight count for nothing. A simulated network does not
//! keep the limit: there it is left out, and that is said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::escaped;
use clearway_sim::spec::qos::{PortAddress, QosPlan};

/// The longest answer that is read: a map of a switch has a row for each of 254 ports.
const ANSWER_MAX: u64 = 1 << 20;
/// The program that asks.
const SMPQUERY: &str = "smpquery";

/// Where answers come from.
#[derive(Clone, Debug)]
pub(crate) enum AnswerSource {
    /// The network of this host; answers are kept in the directory, if there is one.
    Live(Option<PathBuf>),
    /// The same on ibsim.
    Simulated,
    /// Files in a directory: `sl2vl-LID-PORT`, `vlarb-LID-PORT`, `portinfo-LID-PORT`.
    Recorded(PathBuf),
}

impl AnswerSource {
    fn answer(&self, question: &str, port: &PortAddress) -> Result<String> {
        let (lid, number) = (port.lid.to_string(), port.number.to_string());
        let name = format!("{question}-{lid}-{number}");
        let keep = match self {
            Self::Recorded(directory) => return read(&directory.join(name)),
            Self::Live(keep) => keep.as_ref(),
            Self::Simulated => None,
        };
        let told = Command::new(SMPQUERY)
            .args([question, &lid, &number])
            .output()
            .with_context(|| format!("{SMPQUERY} does not start; it is in infiniband-diags"))?;
        if !told.status.success() {
            let why = String::from_utf8_lossy(&told.stderr);
            let why = why.lines().last().unwrap_or("it said nothing");
            bail!("{SMPQUERY} {question} {lid} {number}: {}", escaped(why));
        }
        if let Some(directory) = keep {
            let path = directory.join(name);
            fs::write(&path, &told.stdout).with_context(|| path.display().to_string())?;
        }
        Ok(String::from_utf8_lossy(&told.stdout).into_owned())
    }
}

fn read(path: &Path) -> Result<String> {
    let found = fs::metadata(path).with_context(|| path.display().to_string())?;
    if found.len() > ANSWER_MAX {
        bail!("{}: larger than {ANSWER_MAX} bytes, which no answer is", path.display());
    }
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a sentence for each difference between `plan` and what `ports` have.
///
/// # Errors
/// A port that does not answer.
pub(crate) fn differences(
    plan: &QosPlan,
    ports: &[PortAddress],
    source: &AnswerSource,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for port in ports {
        let name = format!("{} lid {} port {}", escaped(&port.device), port.lid, port.number);
        let mut tell = |what: String| found.push(format!("{name}: {what}"));
        compare_lanes(plan, &source.answer("sl2vl", port)?, &mut tell);
        // Port 0 of a switch has no cable, and no tables to arbitrate with.
        if port.number == 0 {
            continue;
        }
        compare_tables(plan, &source.answer("vlarb", port)?, &mut tell);
        if !matches!(source, AnswerSource::Simulated) {
            compare_limit(plan, &source.answer("portinfo", port)?, &mut tell);
        }
    }
    Ok(found)
}

/// Returns the numbers between the bars of a row.
fn cells(row: &str) -> Vec<u8> {
    let cells = row.split('|').skip(1).map(str::trim).filter(|cell| !cell.is_empty());
    let number = |cell: &str| match cell.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => cell.parse().ok(),
    };
    cells.map_while(number).collect()
}

fn compare_lanes(plan: &QosPlan, answer: &str, tell: &mut dyn FnMut(String)) {
    let rows: Vec<Vec<u8>> =
        answer.lines().filter(|row| row.starts_with("ports:")).map(cells).collect();
    if rows.is_empty() {
        return tell("it tells no lanes of service levels".to_owned());
    }
    for row in &rows {
        let planned = plan.lane_of_level.iter().enumerate();
        let other = planned.zip(row).find(|((_, lane), own)| lane != own);
        if let Some(((level, lane), own)) = other {
            return tell(format!("service level {level} is on lane {own}; planned is {lane}"));
        }
        if row.len() < plan.lane_of_level.len() {
            return tell("it tells the lanes of some service levels only".to_owned());
        }
    }
}

/// Returns both tables of an answer, the low one first, without entries that have no weight.
fn tables(answer: &str) -> Vec<Vec<(u8, u8)>> {
    let rows = |begin: &str| -> Vec<Vec<u8>> {
        answer.lines().filter(|row| row.starts_with(begin)).map(cells).collect()
    };
    let weighed = |(lanes, weights): (Vec<u8>, Vec<u8>)| {
        lanes.into_iter().zip(weights).filter(|(_, weight)| *weight > 0).collect()
    };
    rows("VL").into_iter().zip(rows("WEIGHT")).map(weighed).collect()
}

fn compare_tables(plan: &QosPlan, answer: &str, tell: &mut dyn FnMut(String)) {
    let shown = |table: &[(u8, u8)]| {
        table.iter().map(|(lane, weight)| format!("{lane}:{weight}")).collect::<Vec<_>>().join(",")
    };
    match &tables(answer)[..] {
        [low, high] => {
            for (name, own, planned) in
                [("high", high, &plan.tables.high), ("low", low, &plan.tables.low)]
            {
                if own != planned {
                    tell(format!(
                        "its {name} table is {}; planned is {}",
                        shown(own),
                        shown(planned)
                    ));
                }
            }
        }
        _ => tell("it tells no tables".to_owned()),
    }
}

fn compare_limit(plan: &QosPlan, answer: &str, tell: &mut dyn FnMut(String)) {
    let line = answer.lines().find_map(|line| line.strip_prefix("VLHighLimit:"));
    match line.map(|line| line.trim_start_matches('.').trim().parse::<u8>()) {
        Some(Ok(own)) if own == plan.tables.high_limit => {}
        Some(Ok(own)) => {
            tell(format!("its high limit is {own}; planned is {}", plan.tables.high_limit))
        }
        _ => tell("it tells no high limit".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Bytes;

    use super::*;

    const LANES: &str = "# SL2VL table: Lid 3\n#                 SL: | 0| 1| 2| 3| 4| 5| 6| 7| 8| 9|10|11|12|13|14|15|\n\
        ports: in  0, out  3: | 0| 1| 2| 3| 4| 0| 0| 0| 0| 0| 0| 0| 0| 0| 0| 0|\n\
        ports: in  1, out  3: | 0| 1| 2| 3| 4| 0| 0| 0| 0| 0| 0| 0| 0| 0| 0| 0|\n";
    const TABLES: &str = "# VLArbitration tables: Lid 3 port 3 LowCap 8 HighCap 8\n# Low priority VL Arbitration Table:\n\
        VL    : |0x0 |0x3 |0x0 |0x3 |0x4 |0x0 |0x0 |0x0 |\nWEIGHT: |0x80|0x40|0x80|0x40|0x40|0x0 |0x0 |0x0 |\n\
        # High priority VL Arbitration Table:\n\
        VL    : |0x1 |0x2 |0x0 |0x0 |0x0 |0x0 |0x0 |0x0 |\nWEIGHT: |0x40|0x40|0x0 |0x0 |0x0 |0x0 |0x0 |0x0 |\n";
    const INFO: &str =
        "VLCap:...........................VL0-7\nVLHighLimit:.....................4\n";

    /// The differences of a port of a switch that once gave these answers.
    fn found(lanes: &str, tables: &str, info: &str) -> Vec<String> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("clearway-verify-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        for (question, text) in [("sl2vl", lanes), ("vlarb", tables), ("portinfo", info)] {
            fs::write(directory.join(format!("{question}-3-1")), text).expect("written");
        }
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let device = "leaf\u{1b}".to_owned();
        let port = PortAddress { device, is_switch: true, lid: 3, number: 1 };
        let source = AnswerSource::Recorded(directory.clone());
        let found = differences(&plan, &[port], &source);
        fs::remove_dir_all(&directory).expect("removed");
        found.expect("all answers are there")
    }

    #[test]
    fn differences__each_is_a_sentence_with_its_port() {
        assert_eq!(found(LANES, TABLES, INFO), Vec::<String>::new());
        let name = "leaf\\u{1b} lid 3 port 1";
        for (found, sentence) in [
            (
                found(&LANES.replace("| 3| 4|", "| 0| 4|"), TABLES, INFO),
                "service level 3 is on lane 0; planned is 3",
            ),
            (
                found(LANES, &TABLES.replace("0x80", "0x4 "), INFO),
                "its low table is 0:4,3:64,0:4,3:64,4:64; planned is 0:128,3:64,0:128,3:64,4:64",
            ),
            (
                found(LANES, TABLES, &INFO.replace(".4", ".255")),
                "its high limit is 255; planned is 4",
            ),
            (found("", TABLES, INFO), "it tells no lanes of service levels"),
            (found(LANES, "VL\n", INFO), "it tells no tables"),
            (found(LANES, TABLES, "VLHighLimit:..x"), "it tells no high limit"),
        ] {
            assert_eq!(found, [format!("{name}: {sentence}")]);
        }
    }

    #[test]
    fn answer__a_recording_that_is_not_there_is_named() {
        let source = AnswerSource::Recorded(PathBuf::from("/nowhere"));
        let port = PortAddress { device: String::new(), is_switch: false, lid: 9, number: 1 };
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let error = differences(&plan, &[port], &source).expect_err("nothing is there");
        assert_eq!(error.to_string(), "/nowhere/sl2vl-9-1");
    }
}
