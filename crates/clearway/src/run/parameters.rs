//! Lists every value in force in a run, with who chose it.

use std::collections::BTreeSet;

use toml::de::DeTable;

use crate::report::model::{Parameter, ParameterOrigin};
use crate::scenario::Scenario;

/// Returns every value in force, as `table.key`, with who chose it: `given` is the file as it was
/// written, `flags` are the names that the command line set.
pub(super) fn parameters(
    scenario: &Scenario,
    given: &str,
    flags: &BTreeSet<String>,
) -> Vec<Parameter> {
    let text = scenario.text().unwrap_or_default();
    let (Ok(all), written) = (DeTable::parse(&text), DeTable::parse(given)) else {
        return Vec::new();
    };
    let written = written.map(|written| written.into_inner()).unwrap_or_default();
    let mut list = ParameterList { text: &text, flags, parameters: Vec::new() };
    list.add(all.get_ref(), Some(&written), "");
    list.parameters
}

/// Parameters that were found so far.
struct ParameterList<'a> {
    /// What the tables were read from.
    text: &'a str,
    flags: &'a BTreeSet<String>,
    parameters: Vec<Parameter>,
}

impl ParameterList<'_> {
    /// Appends the leaves of `table`.
    fn add(&mut self, table: &DeTable<'_>, written: Option<&DeTable<'_>>, prefix: &str) {
        for (key, value) in table {
            let name = format!("{prefix}{}", key.get_ref());
            let there = written.and_then(|table| table.get(key.get_ref().as_ref()));
            if let Some(inner) = value.get_ref().as_table() {
                self.add(
                    inner,
                    there.and_then(|there| there.get_ref().as_table()),
                    &format!("{name}."),
                );
                continue;
            }
            let origin = match (self.flags.contains(&name), there) {
                (true, _) => ParameterOrigin::Flag,
                (false, Some(_)) => ParameterOrigin::Scenario,
                (false, None) => ParameterOrigin::Default,
            };
            let value = value.get_ref().as_str().unwrap_or(&self.text[value.span()]).to_owned();
            self.parameters.push(Parameter { name, value, unit: String::new(), origin });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::sample::{KNOCKS, SampleSection};
    use crate::scenario::{SectionKind, read_text};

    #[test]
    fn parameters__say_who_chose_each_value() {
        let mut scenario =
            read_text(KNOCKS, &[SectionKind::new::<SampleSection>()]).expect("it can run");
        // More than a number of TOML has by default.
        scenario.seed = u64::MAX;
        let flags = BTreeSet::from(["seed".to_owned()]);
        let parameters = parameters(&scenario, KNOCKS, &flags);
        let found = |name: &str| {
            parameters.iter().find(|it| it.name == name).map(|it| (it.value.as_str(), it.origin))
        };
        assert_eq!(found("seed"), Some(("18446744073709551615", ParameterOrigin::Flag)));
        assert_eq!(found("knock.times"), Some(("5", ParameterOrigin::Scenario)));
        assert_eq!(found("knock.each-takes"), Some(("1ms", ParameterOrigin::Default)));
        assert_eq!(found("verdict.factor-max").map(|it| it.1), Some(ParameterOrigin::Default));
        assert_eq!(found("fabric.topology.rate").map(|it| it.1), Some(ParameterOrigin::Scenario));
    }
}
