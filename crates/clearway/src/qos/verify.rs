//! Whether the ports of a network have what was planned: asked of each by `smpquery`, or read from
//! what it said before.
//!
//! # Model
//! A port is asked for the lanes of the levels (`sl2vl`), both tables (`vlarb`), the limit of the
//! high one and the lanes in use (`portinfo`). Entries without weight count for nothing. A simulated
//! network does not keep the limit: there it is left out, and that is said.
//!
//! A *path* is what a client gets: for the port of each class the subnet manager is asked, by
//! `saquery`, which level it gives from one adapter to another, and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clearway_proto::base::Class;
use clearway_runtime::launch::escaped;
use clearway_sim::spec::qos::{PortAddress, QosPlan};

use super::emit::service;
use super::level;

/// The longest answer that is read: a map of a switch has a row for each of 254 ports.
const ANSWER_MAX: u64 = 1 << 20;
/// The programs that ask ports and the subnet manager.
const SMPQUERY: &str = "smpquery";
const SAQUERY: &str = "saquery";

/// Where answers come from.
#[derive(Clone, Debug)]
pub(crate) enum AnswerSource {
    /// The network of this host; answers are kept in the directory, if there is one.
    Live(Option<PathBuf>),
    /// The same on ibsim.
    Simulated,
    /// Files in a directory: `sl2vl-LID-PORT`, `vlarb-LID-PORT`, `portinfo-LID-PORT`, and
    /// `path-LID-LID-CLASS`.
    Recorded(PathBuf),
}

impl AnswerSource {
    /// Asks a port.
    fn answer(&self, question: &str, port: &PortAddress) -> Result<String> {
        let (lid, number) = (port.lid.to_string(), port.number.to_string());
        self.ask(SMPQUERY, &[question, &lid, &number], &format!("{question}-{lid}-{number}"))
    }

    /// Asks the subnet manager for the path that a client of `class` gets.
    fn path(&self, class: Class, from: u16, to: u16) -> Result<String> {
        let (service, lids) =
            (format!("0x{:016x}", service(class)), [from, to].map(|lid| lid.to_string()));
        let [slid, dlid] = &lids;
        let words = ["PR", "--slid", slid, "--dlid", dlid, "--service_id", &service];
        self.ask(SAQUERY, &words, &format!("path-{slid}-{dlid}-{class}"))
    }

    /// Returns what `program` says, now or in the recording called `name`.
    fn ask(&self, program: &str, words: &[&str], name: &str) -> Result<String> {
        let keep = match self {
            Self::Recorded(directory) => return read(&directory.join(name)),
            Self::Live(keep) => keep.as_ref(),
            Self::Simulated => None,
        };
        let output = Command::new(program)
            .args(words)
            .output()
            .with_context(|| format!("{program} does not start; it is in infiniband-diags"))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.lines().last().unwrap_or("no reason given");
            bail!(
                "{program} {}: {}; run it on a host of the InfiniBand network as root, or compare answers of another host with --recorded DIR",
                words.join(" "),
                escaped(why)
            );
        }
        if let Some(directory) = keep {
            let path = directory.join(name);
            fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
            fs::write(&path, &output.stdout).with_context(|| path.display().to_string())?;
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns a sentence if `port` has fewer lanes than `plan` needs.
    ///
    /// # Errors
    /// No answer.
    pub(super) fn few_lanes(&self, plan: &QosPlan, port: &PortAddress) -> Result<Option<String>> {
        Ok(few_lanes(plan, "VLCap:", &self.answer("portinfo", port)?))
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
        let name = escaped(&port.name());
        let mut tell = |what: String| found.push(format!("{name}: {what}"));
        compare_lanes(plan, &source.answer("sl2vl", port)?, &mut tell);
        // Port 0 of a switch has no cable, and no tables to arbitrate with.
        if port.number == 0 {
            continue;
        }
        compare_tables(plan, &source.answer("vlarb", port)?, &mut tell);
        let info = source.answer("portinfo", port)?;
        few_lanes(plan, "OperVLs:", &info).into_iter().for_each(&mut tell);
        if !matches!(source, AnswerSource::Simulated) {
            compare_limit(plan, &info, &mut tell);
        }
    }
    Ok(found)
}

/// Returns a sentence for each class that gets another level than planned on the way between the
/// adapter at `from` and any other of `ports`, in either direction; and how many paths were asked for.
///
/// # Errors
/// The subnet manager does not answer.
pub(crate) fn path_differences(
    plan: &QosPlan,
    ports: &[PortAddress],
    from: u16,
    source: &AnswerSource,
) -> Result<(usize, Vec<String>)> {
    let (mut count, mut found) = (0, Vec::new());
    let others = ports.iter().filter(|port| !port.is_switch && port.lid != from);
    for other in others {
        for (from, to) in [(from, other.lid), (other.lid, from)] {
            for class in Class::ALL {
                let (own, planned) =
                    (path_level(&source.path(class, from, to)?), level(plan, class));
                count += 1;
                let tell =
                    |what: String| format!("path from lid {from} to lid {to}, {class}: {what}");
                match own {
                    Some(own) if own == planned => {}
                    Some(own) => {
                        found.push(tell(format!("service level {own}; planned is {planned}")))
                    }
                    None => found.push(tell("the subnet manager gives none".to_owned())),
                }
            }
        }
    }
    Ok((count, found))
}

/// Returns the level in a path record.
fn path_level(answer: &str) -> Option<u8> {
    let level = answer.lines().find_map(|line| line.trim().strip_prefix("sl."))?;
    u8::from_str_radix(level.trim_start_matches('.').strip_prefix("0x")?, 16).ok()
}

/// Returns a sentence if the lanes that an answer says under `key` are fewer than `plan` needs.
fn few_lanes(plan: &QosPlan, key: &str, answer: &str) -> Option<String> {
    let line = answer.lines().find_map(|line| line.trim().strip_prefix(key))?;
    let lanes = line.trim_start_matches('.').strip_prefix("VL0")?;
    // One lane is written without a range.
    let last: u8 = lanes.strip_prefix('-').map_or(Some(0), |last| last.trim().parse().ok())?;
    let lanes = last.saturating_add(1);
    let together: Vec<String> = plan
        .merged(lanes)
        .iter()
        .map(|classes| classes.iter().map(|class| class.name()).collect::<Vec<_>>().join(" with "))
        .collect();
    let shared = together.join(", ");
    (!together.is_empty()).then(|| format!("it has {lanes} lanes, so that {shared} share one"))
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
    const INFO: &str = "VLCap:...........................VL0-7\nVLHighLimit:.....................4\nOperVLs:.........................VL0-7\n";

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
            (
                found(
                    LANES,
                    TABLES,
                    &INFO.replace("OperVLs:.........................VL0-7", "OperVLs:.....VL0-3"),
                ),
                "it has 4 lanes, so that best-effort with scavenger share one",
            ),
            (found("", TABLES, INFO), "it tells no lanes of service levels"),
            (found(LANES, "VL\n", INFO), "it tells no tables"),
            (found(LANES, TABLES, "VLHighLimit:..x"), "it tells no high limit"),
        ] {
            assert_eq!(found, [format!("{name}: {sentence}")]);
        }
    }

    #[test]
    fn path_differences__every_class_is_asked_for_both_ways() {
        let directory = std::env::temp_dir().join(format!("clearway-paths-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        for class in Class::ALL {
            let level = if class == Class::Bulk { 0 } else { level(&plan, class) };
            for (ends, level) in [("1-5", level), ("5-1", super::level(&plan, class))] {
                let text = format!(
                    "PathRecord dump:\n\t\tqos_class...............0x0\n\t\tsl......................0x{level:X}\n"
                );
                fs::write(directory.join(format!("path-{ends}-{class}")), text).expect("written");
            }
        }
        fs::write(directory.join("path-5-1-control"), "").expect("written");
        let port =
            |lid, is_switch| PortAddress { device: String::new(), is_switch, lid, number: 1 };
        let ports = [port(1, false), port(2, true), port(5, false)];
        let source = AnswerSource::Recorded(directory.clone());
        let found = path_differences(&plan, &ports, 1, &source);
        fs::remove_dir_all(&directory).expect("removed");
        let expected = [
            "path from lid 1 to lid 5, bulk: service level 0; planned is 3",
            "path from lid 5 to lid 1, control: the subnet manager gives none",
        ];
        assert_eq!(found.expect("all is there"), (10, expected.map(str::to_owned).to_vec()));
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
