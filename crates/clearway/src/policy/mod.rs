//! Says who may use which traffic class: the policy of a site, as a value.
//!
//! # Model
//! A policy is a list of rules. A rule has matchers (user, group, job, program) and grants a class,
//! and every less urgent one. The first rule counts whose matchers all match a request; behind the
//! last one stands an implied rule for everybody, which grants best effort. A request for a more
//! urgent class than granted gets the granted one.
//!
//! # Invariants
//! I1. Every rule of a policy that was read can match: no rule before it covers it.
//! I2. Shares are at most a whole link, and no ceiling is above the link.
//! I3. Where a class has a budget, there is a coordinator.
//!
//! # Not here
//! Enforcement: a policy is asked by Clearway's own programs. What others send is limited by the
//! marks of `clearway setup-node --policy`.

mod ask;
mod budget;
mod coordinator;
mod packets;
mod page;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clearway_proto::base::{BitsPerSec, Class};
use clearway_sim::spec::qos::{LOW_CLASSES, LowShares};
use serde::Serialize;

use crate::scenario::Time;

pub(crate) use ask::{PolicyFlags, TimeslicePolicyFlags, in_force, shmem_class};
use budget::CoordinatorPlace;
pub(crate) use budget::{BudgetClient, BudgetTerms};
pub(crate) use coordinator::{CoordinatorFlags, serve};
pub(crate) use packets::OwnerLimit;
#[cfg(test)]
pub(crate) use text::read_text;
pub(crate) use text::{FaultyPolicy, read};

/// What a rule can look at.
const MATCHERS: [&str; 4] = ["user", "group", "job", "program"];
/// What the implied last rule grants: the class of traffic that asked for nothing.
const IMPLIED: Class = Class::BestEffort;
/// The longest name of a user or group: `useradd(8)`.
const ACCOUNT_BYTES_MAX: usize = 32;

/// The policy of a site.
#[derive(Clone, Debug)]
pub(crate) struct SitePolicy {
    /// The name of its file, for sentences.
    file: String,
    /// The rate of a host's link.
    link: Option<BitsPerSec>,
    /// The coordinator, which divides budgets.
    coordinator: Option<CoordinatorPlace>,
    /// What all hosts may send of a class together.
    budgets: BTreeMap<Class, BitsPerSec>,
    rules: Vec<PolicyRule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRule {
    /// Its place in the file, from 1.
    number: usize,
    line: usize,
    /// By the place in [`MATCHERS`].
    matchers: [Matcher; MATCHERS.len()],
    /// The most urgent class that may be used.
    class: Class,
    share: Option<PolicyShare>,
    /// The most that one host may send.
    ceiling: Option<BitsPerSec>,
    deadline: Option<Time>,
}

/// The names that a matcher accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Matcher {
    #[default]
    Any,
    OneOf(BTreeSet<String>),
}

/// The part of a link that a rule has for its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyShare {
    /// Parts, next to those of other rules.
    Weight(u32),
    /// Percent of what control and low latency leave.
    Percent(u32),
}

impl fmt::Display for PolicyShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weight(weight) => write!(f, "{weight}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A requester of a class: the names that each matcher is compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyRequester {
    /// By the place in [`MATCHERS`]; of a job its name and its number, of a program the mechanism and
    /// the name of its file.
    names: [Vec<String>; MATCHERS.len()],
}

impl PolicyRequester {
    /// Creates a requester of these users, groups, jobs and programs.
    pub(crate) fn new(names: [Vec<String>; MATCHERS.len()]) -> Self {
        Self { names }
    }
}

/// What a policy says to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Grant {
    pub(crate) requested: Class,
    pub(crate) granted: Class,
    /// The most urgent class that would be granted.
    #[serde(rename = "most")]
    pub(crate) limit: Class,
    /// The rule that counts, with its file.
    pub(crate) rule: String,
    /// The most that this host may send.
    #[serde(serialize_with = "shown")]
    pub(crate) ceiling: Option<BitsPerSec>,
    #[serde(serialize_with = "shown")]
    pub(crate) deadline: Option<Time>,
    /// The budget of the granted class over all hosts.
    #[serde(serialize_with = "shown")]
    pub(crate) budget: Option<BudgetTerms>,
}

/// Writes a value as its text.
fn shown<T: fmt::Display, S: serde::Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

impl Grant {
    /// Returns the grant in one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { requested, granted, rule, .. } = self;
        let limits = self.limits();
        match requested == granted {
            true => format!("class {granted} was requested and is granted{limits}: {rule}"),
            false => {
                format!("class {requested} was requested, {granted} is granted{limits}: {rule}")
            }
        }
    }

    /// Returns what is granted, where nothing in particular was requested.
    pub(crate) fn most(&self) -> String {
        let Self { granted, rule, .. } = self;
        let lower = if *granted == Class::Scavenger { "" } else { " and less urgent ones" };
        format!("class {granted}{lower}{}: {rule}", self.limits())
    }

    /// Returns the limits in addition to the class.
    fn limits(&self) -> String {
        let limits = [
            self.ceiling.map(|ceiling| format!(", at most {ceiling} for each host")),
            self.budget
                .as_ref()
                .map(|budget| format!(", within a budget of {budget} shared by all hosts")),
            self.deadline.map(|deadline| format!(", within {deadline}")),
        ];
        limits.into_iter().flatten().collect()
    }
}

impl Matcher {
    fn accepts(&self, names: &[String]) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(accepted) => names.iter().any(|name| accepted.contains(name)),
        }
    }

    /// Returns whether it accepts everything that `other` does.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::OneOf(_), Self::Any) => false,
            (Self::OneOf(own), Self::OneOf(other)) => other.is_subset(own),
        }
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::OneOf(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

impl PolicyRule {
    fn accepts(&self, requester: &PolicyRequester) -> bool {
        self.matchers.iter().zip(&requester.names).all(|(matcher, names)| matcher.accepts(names))
    }

    fn covers(&self, other: &Self) -> bool {
        self.matchers.iter().zip(&other.matchers).all(|(own, other)| own.covers(other))
    }

    /// Returns its matchers, for a person.
    fn who(&self) -> String {
        let given = MATCHERS.iter().zip(&self.matchers);
        let given = given.filter(|(_, matcher)| **matcher != Matcher::Any);
        let words: Vec<String> = given.map(|(name, matcher)| format!("{name} {matcher}")).collect();
        if words.is_empty() { "*".to_owned() } else { words.join("; ") }
    }
}

impl SitePolicy {
    /// Returns what `requester` gets who asks for `requested`.
    pub(crate) fn grant(&self, requester: &PolicyRequester, requested: Class) -> Grant {
        let rule = self.rules.iter().find(|rule| rule.accepts(requester));
        let most = rule.map_or(IMPLIED, |rule| rule.class);
        let named = match rule {
            Some(rule) => format!("rule {} of {}, line {}", rule.number, self.file, rule.line),
            None => format!("no rule of {} matches, which means {IMPLIED}", self.file),
        };
        let granted = requested.max(most);
        Grant {
            requested,
            granted,
            limit: most,
            rule: named,
            ceiling: rule.and_then(|rule| rule.ceiling),
            deadline: rule.and_then(|rule| rule.deadline),
            budget: self.terms(granted),
        }
    }

    /// Returns the terms of one budget, by which the coordinator can be called; `None` where there is
    /// no budget.
    pub(crate) fn first_budget(&self) -> Option<BudgetTerms> {
        self.budgets.keys().find_map(|class| self.terms(*class))
    }

    /// Returns the budget of a class, if it has one.
    fn terms(&self, class: Class) -> Option<BudgetTerms> {
        let (budget, place) = self.budgets.get(&class).zip(self.coordinator.as_ref())?;
        Some(BudgetTerms { class, budget: *budget, place: place.clone() })
    }

    /// Returns the parts of best effort, bulk and scavenger in what more urgent classes leave;
    /// `None` if no rule has a share. A class without a share has its usual part: of weights, or of
    /// the percents that are left.
    pub(crate) fn shares(&self) -> Option<LowShares> {
        let shares = || self.rules.iter().filter_map(|rule| Some((rule.class, rule.share?)));
        let of = |class: Class| {
            let own = shares().filter(|(of, _)| *of == class);
            own.map(|(_, PolicyShare::Weight(parts) | PolicyShare::Percent(parts))| parts).sum()
        };
        let given: [u32; LOW_CLASSES.len()] = LOW_CLASSES.map(of);
        let usual = LowShares::USUAL.parts();
        let parts = match shares().next()?.1 {
            PolicyShare::Weight(_) => [0, 1, 2].map(|place| match given[place] {
                0 => usual[place],
                parts => parts,
            }),
            PolicyShare::Percent(_) => {
                let left = 100_u32.saturating_sub(given.iter().sum());
                let others = given.iter().zip(usual).filter(|(given, _)| **given == 0);
                let of_others: u32 = others.map(|(_, usual)| usual).sum();
                [0, 1, 2].map(|place| match given[place] {
                    // Nobody starves, also where the others are promised everything.
                    0 => (left * usual[place] / of_others.max(1)).max(1),
                    parts => parts,
                })
            }
        };
        LowShares::new(parts)
    }
}

/// Returns whether this can be the name of a user or group, which also stands in a script.
pub(crate) fn is_account(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (1..=ACCOUNT_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with('-')
}

#[cfg(test)]
mod tests;
