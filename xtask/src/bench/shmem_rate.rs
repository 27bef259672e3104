//! Message rates of the OpenSHMEM library's queues, for `cargo xtask bench shmem --far`.
//!
//! # Model
//! PE 0 pushes puts of 8 to 1,024 bytes to PE 1, over each wire, with each threshold of gathering
//! and with gathering off. A figure is the median of batches; next to it stand how many times the
//! rate of the same wire without gathering that is, and the elements that the interface sent in a
//! packet. Near PEs gather atomic operations only.
//!
//! The two examples of queues run over each wire once.
//!
//! # Not here
//! The measured loops: `shmem_rate.c`, and the examples of the library.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use super::shmem::figure;

/// The program.
pub(super) const RATE_SOURCE: &str = include_str!("shmem_rate.c");
/// The variable that says how much is gathered.
pub(super) const THRESHOLD: &str = "SHMEMX_QUEUE_THRESHOLD";
/// Its values; the first gathers nothing.
pub(super) const THRESHOLDS: [&str; 8] = ["0", "1k", "2k", "4k", "8k", "16k", "32k", "64k"];
/// What the program measures.
const RATES: [&str; 9] =
    ["add_8", "put_8", "put_16", "put_32", "put_64", "put_128", "put_256", "put_512", "put_1024"];
/// How many times the rate without gathering is wanted at 8 bytes on every far wire.
const WANTED: f64 = 2.2;
/// The examples, what each is run with, and the goal in millions a second of each PE.
pub(super) const EXAMPLES: [(&str, &[&str], f64); 2] = [
    ("histogram", &["-n", "4000000", "-m", "queue"], 30.0),
    ("indexgather", &["-n", "1000000"], 10.0),
];

/// By wire, threshold and measurement: median in ns, and elements of a packet.
#[derive(Debug, Default)]
pub(super) struct RatesSeen(BTreeMap<(&'static str, &'static str, &'static str), [f64; 2]>);

impl RatesSeen {
    /// Takes the output of a run.
    pub(super) fn collect(&mut self, wire: &'static str, threshold: &'static str, text: &str) {
        for name in RATES {
            match figure(text, name) {
                Ok([_, p50, _, elements]) => {
                    self.0.insert((wire, threshold, name), [p50, elements]);
                }
                Err(error) => eprintln!("skipped: {wire}, {threshold}: {error}"),
            }
        }
    }

    /// Returns the table of a wire.
    pub(super) fn table(&self, wire: &'static str) -> String {
        let mut text = format!(
            "\n{wire}: M elements/s, by threshold (times the rate without gathering; elements a packet)\n{:<9}",
            ""
        );
        THRESHOLDS.iter().for_each(|threshold| text += &format!("{threshold:>22}"));
        for name in RATES {
            let alone = self.0.get(&(wire, THRESHOLDS[0], name)).map(|[ns, _]| *ns);
            let _ = write!(text, "\n{name:<9}");
            for threshold in THRESHOLDS {
                let cell = self.0.get(&(wire, threshold, name)).map(|[ns, elements]| {
                    let times = alone.map_or(0.0, |alone| alone / ns);
                    format!("{:.2} ({times:.1}; {elements:.0})", 1e3 / ns)
                });
                let _ = write!(text, "{:>22}", cell.unwrap_or_else(|| "-".to_owned()));
            }
        }
        text.push('\n');
        text
    }

    /// Returns the sentence about the goal of a far wire.
    pub(super) fn verdict(&self, wire: &'static str) -> Option<String> {
        let of = |threshold| self.0.get(&(wire, threshold, "put_8")).map(|[ns, _]| *ns);
        let alone = of(THRESHOLDS[0])?;
        let best = THRESHOLDS[1..].iter().filter_map(|threshold| of(threshold)).reduce(f64::min)?;
        let times = alone / best;
        let is_met = if times >= WANTED { "met" } else { "missed" };
        Some(format!("{wire}: {times:.1} times at 8 bytes, wanted {WANTED}: {is_met}\n"))
    }
}

/// Returns the millions a second of each PE that an example printed.
pub(super) fn millions(said: &str) -> Result<f64> {
    let words: Vec<&str> = said.split_ascii_whitespace().collect();
    let before = words.iter().position(|word| *word == "M").and_then(|at| at.checked_sub(1));
    let word = before.and_then(|at| words.get(at)).context("no figure")?;
    word.parse().with_context(|| format!("`{word}` is no figure"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table__has_rates_ratios_and_elements_of_a_packet() {
        let mut seen = RatesSeen::default();
        seen.collect("udp", "0", "put_8 6000.0 6250.0 8 0.8\n");
        seen.collect("udp", "4k", "put_8 80.0 100.0 8 214.2\n");
        let table = seen.table("udp");
        let row = table.lines().find(|line| line.starts_with("put_8 ")).expect("a row");
        assert!(row.contains("0.16 (1.0; 1)") && row.contains("10.00 (62.5; 214)"), "{row}");
        let verdict = seen.verdict("udp").expect("figures");
        assert_eq!(verdict, "udp: 62.5 times at 8 bytes, wanted 2.2: met\n");
        assert_eq!(seen.verdict("ofi"), None);
    }

    #[test]
    fn millions__is_the_figure_that_an_example_prints() {
        let said = "histogram queue: 2 PEs, 12.5 M updates/s a PE\n";
        assert_eq!(millions(said).ok(), Some(12.5));
        assert!(millions("M\n").is_err());
    }
}
