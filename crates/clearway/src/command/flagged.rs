//! The report of a run that flags describe, and no scenario file.
//!
//! # Model
//! A parameter bears the name of its flag. Its origin is read from the command line: the flag
//! stands there, or it is a default.

use anyhow::Result;

use super::results::ReportDestination;
use crate::report::model::{Parameter, ParameterOrigin, Report, ReportScenario};
use crate::run;
use crate::run::notice;
use crate::run::venue::Venue;

/// Values in force, by the names of their flags.
pub(super) type FlagValues = Vec<(&'static str, String)>;

/// Returns the value of a flag that takes several.
pub(super) fn joined<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(",")
}

/// A run under way.
pub(super) struct FlaggedRun {
    /// What is known of it so far.
    pub(super) report: Report,
    results: ReportDestination,
}

impl FlaggedRun {
    /// Begins a run called `name` in `venue`, with `values` in force, whose report goes to
    /// `results`.
    pub(super) fn begin(
        name: &str,
        seed: u64,
        values: FlagValues,
        venue: &(impl Venue + ?Sized),
        results: &ReportDestination,
    ) -> Self {
        let scenario = ReportScenario { name: name.to_owned(), text: String::new() };
        let mut report = run::begun_without_scenario(scenario, seed, venue.place().name());
        report.parameters = parameters(values, &report.command);
        venue.introduce(&mut report);
        Self { report, results: results.clone() }
    }

    /// Writes the report, and says where it is on standard error.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(mut self, venue: &(impl Venue + ?Sized)) -> Result<()> {
        run::ended(&mut self.report);
        venue.conclude(&mut self.report);
        let directory = self.results.write(&self.report)?;
        notice!("report: {}", directory.join("report.html").display());
        Ok(())
    }
}

/// Returns `values` as parameters, of which `command` gave some.
pub(super) fn parameters(values: FlagValues, command: &[String]) -> Vec<Parameter> {
    let is_given = |name: &str| {
        let flags = command.iter().filter_map(|word| word.strip_prefix("--"));
        flags.map(|flag| flag.split('=').next().unwrap_or(flag)).any(|flag| flag == name)
    };
    let one = |(name, value): (&str, String)| {
        let origin = if is_given(name) { ParameterOrigin::Flag } else { ParameterOrigin::Default };
        Parameter { name: name.to_owned(), value, unit: String::new(), origin }
    };
    values.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters__what_stands_on_the_command_line_is_a_flag() {
        let command = ["clearway", "--ring=1MiB", "--seed", "3", "inputs"].map(str::to_owned);
        let values = ["ring", "seed", "inputs"].map(|name| (name, "1".to_owned())).to_vec();
        let origins: Vec<_> =
            parameters(values, &command).into_iter().map(|it| it.origin).collect();
        assert_eq!(
            origins,
            [ParameterOrigin::Flag, ParameterOrigin::Flag, ParameterOrigin::Default]
        );
    }
}
