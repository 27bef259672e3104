//! The part of a policy that a node can keep without its programs: what packets may carry by the
//! owner of their socket.
//!
//! # Model
//! No packet shows a job or a program. A rule that looks at them may count for any packet of its
//! owners, so an owner is limited to the most urgent class of the rules that may count for it.

use std::collections::BTreeSet;

use clearway_proto::base::Class;

use super::{IMPLIED, Matcher, PolicyRule, SitePolicy};

/// The owners of some sockets, and the most urgent class that their packets may carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerLimit {
    /// Users, one of whom it is; none are all.
    pub(crate) users: Vec<String>,
    /// Groups, one of which it is; none are all.
    pub(crate) groups: Vec<String>,
    pub(crate) class: Class,
    /// The number of the rule; none is the implied last one.
    pub(crate) rule: Option<usize>,
}

impl PolicyRule {
    fn owners(&self) -> [&Matcher; 2] {
        let [user, group, ..] = &self.matchers;
        [user, group]
    }

    /// Returns whether packets show all that it looks at.
    fn is_by_owner(&self) -> bool {
        let [_, _, job, program] = &self.matchers;
        *job == Matcher::Any && *program == Matcher::Any
    }

    /// Returns whether packets show nothing that it looks at, although it looks at something.
    fn is_hidden(&self) -> bool {
        !self.is_by_owner() && self.owners() == [&Matcher::Any, &Matcher::Any]
    }

    /// Returns whether some socket can belong to owners of both rules. Whether a user is of a group
    /// is not known here.
    fn may_share_owner(&self, other: &Self) -> bool {
        self.owners().into_iter().zip(other.owners()).all(|pair| match pair {
            (Matcher::OneOf(own), Matcher::OneOf(other)) => !own.is_disjoint(other),
            _ => true,
        })
    }
}

fn names(matcher: &Matcher) -> Vec<String> {
    match matcher {
        Matcher::Any => Vec::new(),
        Matcher::OneOf(names) => names.iter().cloned().collect(),
    }
}

impl SitePolicy {
    /// Returns the limits of owners, of which the first that matches a socket counts; the last one is
    /// for everybody.
    pub(crate) fn owner_limits(&self) -> Vec<OwnerLimit> {
        let mut limits: Vec<OwnerLimit> = Vec::new();
        let mut seen = BTreeSet::new();
        for (place, rule) in self.rules.iter().enumerate() {
            let [users, groups] = rule.owners().map(names);
            // A second rule of the same owners comes too late: the first limit counts.
            if rule.is_hidden() || !seen.insert((users.clone(), groups.clone())) {
                continue;
            }
            let class = self.limit(place);
            limits.push(OwnerLimit { users, groups, class, rule: Some(rule.number) });
        }
        if !seen.contains(&(Vec::new(), Vec::new())) {
            let class = hidden(&self.rules).fold(IMPLIED, Class::min);
            limits.push(OwnerLimit { users: Vec::new(), groups: Vec::new(), class, rule: None });
        }
        limits
    }

    /// Returns the most urgent class of the rules that may count for packets of the owners of the
    /// rule at `place`.
    fn limit(&self, place: usize) -> Class {
        let (before, from) = self.rules.split_at(place.min(self.rules.len()));
        let Some((own, behind)) = from.split_first() else { return IMPLIED };
        let class = hidden(before).fold(own.class, Class::min);
        if own.is_by_owner() {
            return class;
        }
        // Where its job or program is another one, a rule behind it counts.
        let [own_user, own_group] = own.owners();
        let counts = |rule: &&PolicyRule| {
            let [user, group] = rule.owners();
            rule.is_by_owner() && user.covers(own_user) && group.covers(own_group)
        };
        let end = behind.iter().position(|rule| counts(&rule));
        let may_count = &behind[..end.map_or(behind.len(), |end| end + 1)];
        let may_count = may_count.iter().filter(|rule| rule.may_share_owner(own));
        let last = if end.is_none() { IMPLIED } else { class };
        may_count.map(|rule| rule.class).fold(class.min(last), Class::min)
    }
}

/// Returns the classes of rules that may count for the packets of everybody.
fn hidden(rules: &[PolicyRule]) -> impl Iterator<Item = Class> + '_ {
    rules.iter().filter(|rule| rule.is_hidden()).map(|rule| rule.class)
}
