//! A policy as a table of 80 columns, and as a document.

use std::collections::BTreeMap;

use clearway_proto::base::Class;
use clearway_runtime::launch::escaped;
use serde::Serialize;

use super::{IMPLIED, MATCHERS, PolicyRule, SitePolicy};

/// The width of a terminal.
const COLUMNS: usize = 80;
/// Columns before the last one, which says whom a rule is for.
const BEFORE_WHO: usize = 47;

/// A policy as a document.
#[derive(Serialize)]
pub(crate) struct PolicyDocument<'p> {
    file: &'p str,
    link: Option<String>,
    coordinator: Option<String>,
    budgets: BTreeMap<Class, String>,
    rules: Vec<RuleDocument>,
    /// What the implied last rule grants.
    others: Class,
}

/// A rule as a document.
#[derive(Serialize)]
struct RuleDocument {
    rule: usize,
    line: usize,
    #[serde(flatten)]
    matchers: BTreeMap<&'static str, String>,
    class: Class,
    share: Option<String>,
    ceiling: Option<String>,
    deadline: Option<String>,
}

/// Returns a value as its text.
fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

impl SitePolicy {
    /// Returns the policy as a document.
    pub(crate) fn document(&self) -> PolicyDocument<'_> {
        let rule = |rule: &PolicyRule| RuleDocument {
            rule: rule.number,
            line: rule.line,
            matchers: MATCHERS
                .into_iter()
                .zip(rule.matchers.iter().map(ToString::to_string))
                .collect(),
            class: rule.class,
            share: text(rule.share),
            ceiling: text(rule.ceiling),
            deadline: text(rule.deadline),
        };
        let rules = self.rules.iter().map(rule).collect();
        let budgets = self.budgets.iter().map(|(class, rate)| (*class, rate.to_string()));
        PolicyDocument {
            file: &self.file,
            link: text(self.link),
            coordinator: text(self.coordinator.as_ref()),
            budgets: budgets.collect(),
            rules,
            others: IMPLIED,
        }
    }

    /// Returns the policy as a table; the first rule counts that matches.
    pub(crate) fn table(&self) -> String {
        let mut page = row(["rule", "class", "share", "ceiling", "deadline"], "for");
        for rule in &self.rules {
            let cells = [
                rule.number.to_string(),
                rule.class.to_string(),
                text(rule.share).unwrap_or_default(),
                text(rule.ceiling).unwrap_or_default(),
                text(rule.deadline).unwrap_or_default(),
            ];
            page += &row(cells.each_ref().map(String::as_str), &escaped(&rule.who()));
        }
        page += &row(["", IMPLIED.name(), "", "", ""], "all others");
        if let Some(place) = self.coordinator.as_ref().filter(|_| !self.budgets.is_empty()) {
            for (class, rate) in &self.budgets {
                page += &format!("all hosts together: {class} up to {rate}\n");
            }
            page += &format!("divided by the coordinator {}\n", escaped(&place.to_string()));
        }
        let link = text(self.link).map_or_else(String::new, |link| format!(", links of {link}"));
        let count = self.rules.len();
        let rules = if count == 1 { "rule" } else { "rules" };
        page + &format!("{count} {rules}{link}; the first that matches counts\n")
    }
}

/// Returns a row, whose last cell has as many lines as it needs.
fn row([rule, class, share, ceiling, deadline]: [&str; 5], who: &str) -> String {
    let before = format!("{rule:>4}  {class:<11}  {share:>5}  {ceiling:>9}  {deadline:>8}  ");
    let mut lines = vec![before];
    for word in who.split_inclusive([' ', ',']) {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let width = lines.last().map_or(0, |line| line.chars().count());
            let room = COLUMNS.saturating_sub(width);
            let has_begun = width > BEFORE_WHO;
            let visible = word.trim_end().chars().count();
            if has_begun && (room == 0 || visible > room) {
                lines.push(" ".repeat(BEFORE_WHO));
                continue;
            }
            let part: String = rest.drain(..rest.len().min(room.max(1))).collect();
            if let Some(line) = lines.last_mut() {
                line.push_str(&part);
            }
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}
