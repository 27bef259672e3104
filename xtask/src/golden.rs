//! `cargo xtask golden`: runs the simulated machines in full and compares their congestion figures
//! with the golden texts.
//!
//! # Model
//! The comparison itself is a test program, `crates/clearway/tests/golden`, here in the release
//! build, in which it makes the runs that are too long for the development build. It leaves what it
//! found below the target directory; `--update` takes that over, for a person to read as a
//! difference and to explain.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// Where golden texts stand.
const KEPT: &str = "crates/clearway/tests/golden";

/// What becomes of texts that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DifferencePolicy {
    Refused,
    Written,
}

/// Runs `golden [--update] [NAME...]`; without names all of them.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (differing, names) = parse(arguments)?;
    let metadata =
        cargo_metadata::MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
    let found = metadata.target_directory.join("tmp/golden").into_std_path_buf();
    // Files of an earlier run must not be taken over.
    let _ = std::fs::remove_dir_all(&found);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&metadata.workspace_root)
        // With the features of the whole workspace, as `cargo build` has them, so that nothing is
        // compiled twice.
        .args(["test", "--quiet", "--release", "--workspace", "--test", "golden", "--"])
        .args(names)
        .status()
        .context("cargo")?;
    if differing == DifferencePolicy::Refused {
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let written = take_over(&found, metadata.workspace_root.join(KEPT).as_std_path())?;
    ensure!(!written.is_empty(), "nothing was run, so nothing is written");
    written.iter().for_each(|name| println!("{KEPT}/{name}"));
    Ok(ExitCode::SUCCESS)
}

/// What becomes of differences, and the words that choose among the tests.
fn parse(arguments: &[String]) -> Result<(DifferencePolicy, Vec<String>)> {
    let (mut differing, mut names) = (DifferencePolicy::Refused, Vec::new());
    for argument in arguments {
        match argument.as_str() {
            "--update" => differing = DifferencePolicy::Written,
            option if option.starts_with('-') => {
                bail!("golden knows --update and names, not `{option}`")
            }
            // As the tests are named.
            name => names.push(format!("golden__{}", name.replace('-', "_"))),
        }
    }
    Ok((differing, names))
}

/// Copies every text in `found` to `kept`; their names.
fn take_over(found: &Path, kept: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let Ok(entries) = std::fs::read_dir(found) else { return Ok(names) };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".txt") {
            std::fs::copy(found.join(&name), kept.join(&name))
                .with_context(|| format!("{KEPT}/{name}"))?;
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__names_are_those_of_tests_and_mistakes_are_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (differing, names) = parse(&words("--update gpcnet-edr")).unwrap();
        assert_eq!(
            (differing, names),
            (DifferencePolicy::Written, vec!["golden__gpcnet_edr".to_owned()])
        );
        assert_eq!(parse(&[]).unwrap(), (DifferencePolicy::Refused, Vec::new()));
        assert!(parse(&words("--updat")).unwrap_err().to_string().contains("not `--updat`"));
    }
}
