//! What `--metrics` serves, as a scraper sees it, and judged by a public parser.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Prints each sample that the parser of Prometheus' own Python client finds, a JSON pair a line.
const PARSER: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
        print(json.dumps([sample.name + (f"{{{labels}}}" if labels else ""), sample.value]))
"#;

/// What begins the address that a command says.
const SAID: &str = "metrics: http://";

/// A scrape: values by name with labels.
pub(crate) struct Scraped {
    text: String,
    samples: BTreeMap<String, f64>,
}

/// Returns the address in a line that a command said; none in others.
pub(crate) fn address(line: &str) -> Option<String> {
    let (_, place) = line.split_once(SAID)?;
    place.trim_end().strip_suffix("/metrics").map(str::to_owned)
}

impl Scraped {
    /// Scrapes what is served at `address`; none when nobody is there any more.
    pub(crate) fn from_address(address: &str) -> Option<Self> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, text) = answer.split_once("\r\n\r\n")?;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"));
        assert!(text.ends_with("# EOF\n"), "{text}");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').expect("a value");
            (name.to_owned(), value.parse().expect("a number"))
        };
        Some(Self { samples: lines.map(sample).collect(), text: text.to_owned() })
    }

    /// Returns the sample with this name and these labels, without the common prefix.
    pub(crate) fn get(&self, name: &str) -> f64 {
        let name = format!("clearway_{name}");
        *self.samples.get(&name).unwrap_or_else(|| panic!("no {name} in\n{}", self.text))
    }

    /// Returns whether there is such a sample.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.samples.contains_key(&format!("clearway_{name}"))
    }

    /// Asserts that the documentation names each figure that begins with `prefix`, and that it and
    /// the dashboard name no other.
    pub(crate) fn is_documented(&self, prefix: &str) {
        let types = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let name = |line: &str| {
            let (name, kind) = line.split_once(' ').expect("a type");
            let suffix = if kind == "counter" { "_total" } else { "" };
            format!("{name}{suffix} ")
        };
        let served: String = types.map(name).collect();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |name: &str| fs::read_to_string(root.join(name)).expect(name);
        let named = |text: &str| -> BTreeSet<String> {
            let words = text.split(|at: char| !at.is_ascii_alphanumeric() && at != '_');
            let words = words.filter(|word| word.starts_with(&format!("clearway_{prefix}")));
            // Those of a sender and of a receiver begin alike.
            let is_other = |word: &&str| prefix == "cast_" && word.contains("cast_serve_");
            let words = words.filter(|word| !is_other(word));
            words.map(|word| word.trim_end_matches("_bucket").to_owned()).collect()
        };
        assert!(named(&served).len() > 4, "{served}");
        assert_eq!(named(&read("docs/metrics.md")), named(&served));
        let dashboard = read("examples/grafana/clearway.json");
        serde_json::from_str::<serde_json::Value>(&dashboard).expect("JSON");
        assert_eq!(named(&dashboard), named(&served), "a figure that nobody sees, or none");
    }

    /// Asserts that the public parser finds the same; says why where there is none.
    pub(crate) fn is_accepted(&self) {
        let has_parser = Command::new("python3").args(["-c", "import prometheus_client"]).output();
        if !has_parser.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: the parser of OpenMetrics (python3 has no prometheus_client)");
            return;
        }
        let mut parser = Command::new("python3");
        parser.args(["-c", PARSER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parser = parser.stderr(Stdio::piped()).spawn().expect("python3");
        let mut input = parser.stdin.take().expect("a pipe");
        input.write_all(self.text.as_bytes()).expect("it reads");
        drop(input);
        let output = parser.wait_with_output().expect("an end");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{why}\n{}", self.text);
        let lines = String::from_utf8(output.stdout).expect("text");
        let pair = |line: &str| serde_json::from_str::<(String, f64)>(line).expect("a pair");
        let found: BTreeMap<String, f64> = lines.lines().map(pair).collect();
        assert_eq!(found, self.samples);
    }
}
