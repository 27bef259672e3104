//! Reads the figures of a report: each has a name, labels, a value with its unit, and the interval
//! that holds the true value with 95 % confidence.
//!
//! `cargo run --example read_report -- out/demo/latest/report.json`
#![cfg_attr(test, allow(non_snake_case))]

use std::fmt::Write;

use serde_json::Value;

/// Prints one line for each figure.
///
/// # Errors
/// A sentence, when `json` is not a report.
fn figures(json: &str) -> Result<String, String> {
    let report: Value =
        serde_json::from_str(json).map_err(|error| format!("this is no JSON: {error}"))?;
    if report["schema"] != "clearway-report/1" {
        return Err("this is no report of schema clearway-report/1".to_owned());
    }
    let figures = report["figures"].as_array().ok_or("the report has no list `figures`")?;
    let mut text = String::new();
    for figure in figures {
        let labels = figure["labels"].as_object().into_iter().flatten();
        let labels: Vec<String> =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("?"))).collect();
        let name = figure["name"].as_str().unwrap_or("?");
        let unit = figure["unit"].as_str().unwrap_or("?");
        // A value that is not finite is a text: "inf".
        let _ = write!(text, "{name}{{{}}} {} {unit}", labels.join(","), figure["value"]);
        if let (Some(low), Some(high)) = (figure["low"].as_f64(), figure["high"].as_f64()) {
            let _ = write!(text, " [{low}, {high}]");
        }
        text.push('\n');
    }
    Ok(text)
}

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("usage: read_report REPORT.JSON")?;
    let json = std::fs::read_to_string(&path)
        .map_err(|error| format!("{path} cannot be read: {error}"))?;
    print!("{}", figures(&json)?);
    Ok(())
}

#[cfg(test)]
#[test]
fn figures__of_a_report_and_of_other_files() {
    let json = r#"{"schema": "clearway-report/1", "figures": [{"name": "congestion_p99",
        "labels": {"queue": "fifo"}, "value": 12.5, "low": 12.25, "high": 13.5, "unit": "us"}]}"#;
    assert_eq!(figures(json).as_deref(), Ok("congestion_p99{queue=fifo} 12.5 us [12.25, 13.5]\n"));
    assert!(figures("{}").is_err() && figures("x").is_err());
}
