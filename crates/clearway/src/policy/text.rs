//! Reads the file of a policy, and says in one sentence what is wrong with it, where, and what would
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use clearway_proto::base::{BitsPerSec, Class};
use clearway_runtime::launch::{escaped, excerpt};
use clearway_sim::spec::qos::LOW_CLASSES;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error};

use super::budget::CoordinatorPlace;
use super::{MATCHERS, Matcher, PolicyRule, PolicyShare, SitePolicy, is_account};
use crate::scenario::{Time, line_of, nearest};

/// The largest file: some thousand names.
const FILE_MAX: u64 = 1 << 18;
/// The most rules, each of which is compared with all before it.
const RULES_MAX: usize = 500;
/// The largest weight: that of a virtual lane (InfiniBand specification volume 1).
const WEIGHT_MAX: u32 = 255;
/// The longest name in a matcher.
const NAME_BYTES_MAX: usize = 255;

/// The keys of the file, and of a rule.
const KEYS: [&str; 5] = ["link", "coordinator", "key", "budget", "rule"];
const RULE_KEYS: [&str; 8] =
    ["user", "group", "job", "program", "class", "share", "ceiling", "deadline"];

/// Reads the policy of a file.
///
/// # Errors
/// One sentence: it cannot be read, or is no policy.
pub(crate) fn read(path: &Path) -> Result<SitePolicy> {
    let shown = escaped(&path.display().to_string());
    // A pipe would block.
    let found = fs::metadata(path).with_context(|| format!("{shown}: cannot be read"))?;
    if !found.is_file() {
        bail!("{shown}: is no regular file; a policy is one");
    }
    let file = fs::File::open(path).with_context(|| format!("{shown}: cannot be read"))?;
    let mut text = String::new();
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("{shown}: cannot be read as text"))?;
    read_text(&shown, &text).map_err(|why| anyhow!(FaultyPolicy(why)))
}

/// The sentence about a file that was read and is no policy.
#[derive(Debug)]
pub(crate) struct FaultyPolicy(String);

impl std::fmt::Display for FaultyPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FaultyPolicy {}

/// Reads the policy of `text`, which is that of the file called `file`.
///
/// # Errors
/// One sentence about the first thing that is wrong.
pub(crate) fn read_text(file: &str, text: &str) -> Result<SitePolicy, String> {
    if text.len() as u64 > FILE_MAX {
        return Err(format!("{file}: larger than {FILE_MAX} bytes, which no policy is"));
    }
    let source = PolicySource { file, text };
    let document = DeTable::parse(text).map_err(|error: Error| {
        let why = error.message().replace('\n', "; ");
        source.wrong(error.span().map_or(0, |span| span.start), &escaped(&why))
    })?;
    let document = document.get_ref();
    source.check_keys(document, &KEYS, "a policy")?;
    let link = document.get("link").map(|link| source.rate(link, "link")).transpose()?;
    let rules = match document.get("rule") {
        None => Vec::new(),
        Some(rules) => source.rules(rules)?,
    };
    let coordinator = source.coordinator(document)?;
    let budgets = source.budgets(document, coordinator.is_some())?;
    let policy = SitePolicy { file: file.to_owned(), link, coordinator, budgets, rules };
    check_covered(&policy)?;
    check_shares(&policy)?;
    check_ceilings(&policy)?;
    Ok(policy)
}

/// A text that is read.
struct PolicySource<'t> {
    file: &'t str,
    text: &'t str,
}

type Value<'i> = Spanned<DeValue<'i>>;

impl PolicySource<'_> {
    /// Returns the sentence about the byte at `at`.
    fn wrong(&self, at: usize, why: &str) -> String {
        format!("{}: line {}: {why}", self.file, line_of(self.text, at))
    }

    fn check_keys(&self, table: &DeTable<'_>, known: &[&str], room: &str) -> Result<(), String> {
        let unknown = table.keys().find(|key| !known.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |key| {
            let name: &str = key.get_ref();
            let hint = nearest(name, known);
            let why = format!("unknown key `{}` in {room}; {hint}", excerpt(name));
            Err(self.wrong(key.span().start, &why))
        })
    }

    /// Returns where the coordinator listens, and the file with its key.
    fn coordinator(&self, document: &DeTable<'_>) -> Result<Option<CoordinatorPlace>, String> {
        let key = document.get("key").map(|key| {
            let path = key.get_ref().as_str().filter(|path| path.starts_with('/'));
            let absolute = "`key` is a file; write its whole path, as in \"/etc/clearway/key\"";
            path.map(PathBuf::from).ok_or_else(|| self.wrong(key.span().start, absolute))
        });
        let key = key.transpose()?;
        match (document.get("coordinator"), key) {
            (Some(place), key) => {
                let mut place: CoordinatorPlace = self.parsed(place, "coordinator")?;
                place.key = key;
                Ok(Some(place))
            }
            (None, Some(_)) => {
                let at = document.get("key").map_or(0, |key| key.span().start);
                let why = "`key` is that of the coordinator; add coordinator = \"HOST:PORT\"";
                Err(self.wrong(at, why))
            }
            (None, None) => Ok(None),
        }
    }

    /// Returns the budgets of classes.
    fn budgets(
        &self,
        document: &DeTable<'_>,
        has_coordinator: bool,
    ) -> Result<BTreeMap<Class, BitsPerSec>, String> {
        let Some(budgets) = document.get("budget") else { return Ok(BTreeMap::new()) };
        let at = budgets.span().start;
        let table = budgets.get_ref().as_table().ok_or_else(|| {
            self.wrong(at, "`budget` is a table; write [budget], and below it bulk = \"20Gb/s\"")
        })?;
        self.check_keys(table, &LOW_CLASSES.map(Class::name), "[budget]")?;
        if !has_coordinator {
            let why = "[budget] needs a coordinator; add coordinator = \"HOST:PORT\" above it";
            return Err(self.wrong(at, why));
        }
        let entries =
            LOW_CLASSES.iter().filter_map(|class| Some((class, table.get(class.name())?)));
        entries.map(|(class, rate)| Ok((*class, self.rate(rate, class.name())?))).collect()
    }

    fn rules(&self, rules: &Value<'_>) -> Result<Vec<PolicyRule>, String> {
        let at = rules.span().start;
        let no_table = || self.wrong(at, "rules are tables; begin each with [[rule]]");
        let rules = rules.get_ref().as_array().ok_or_else(no_table)?;
        if rules.len() > RULES_MAX {
            let why = format!("{} rules; up to {RULES_MAX} work", rules.len());
            return Err(self.wrong(at, &why));
        }
        let rule = |(number, rule): (usize, &Value<'_>)| {
            let table = rule.get_ref().as_table().ok_or_else(no_table)?;
            self.rule(number, rule.span().start, table)
        };
        (1..).zip(rules.iter()).map(rule).collect()
    }

    fn rule(&self, number: usize, at: usize, table: &DeTable<'_>) -> Result<PolicyRule, String> {
        self.check_keys(table, &RULE_KEYS, "a rule")?;
        let mut matchers: [Matcher; MATCHERS.len()] = Default::default();
        for (name, matcher) in MATCHERS.iter().zip(&mut matchers) {
            if let Some(value) = table.get(*name) {
                *matcher = self.matcher(name, value)?;
            }
        }
        let class = table.get("class").ok_or_else(|| {
            self.wrong(at, &format!("rule {number} grants no class; add class = \"bulk\""))
        })?;
        let class: Class = self.parsed(class, "class")?;
        let share = table.get("share").map(|share| self.share(share, class)).transpose()?;
        let ceiling = table.get("ceiling").map(|rate| self.rate(rate, "ceiling")).transpose()?;
        let deadline =
            table.get("deadline").map(|time| self.parsed(time, "deadline")).transpose()?;
        if deadline.is_some_and(|Time(time)| time.0 == 0) {
            let why = format!("rule {number} has a deadline of no time; 30min works");
            return Err(self.wrong(at, &why));
        }
        let line = line_of(self.text, at);
        Ok(PolicyRule { number, line, matchers, class, share, ceiling, deadline })
    }

    /// Returns what a text with the type's own form says.
    fn parsed<T: FromStr>(&self, value: &Value<'_>, key: &str) -> Result<T, String>
    where
        T::Err: std::fmt::Display,
    {
        let at = value.span().start;
        let text = value.get_ref().as_str();
        let text = text.ok_or_else(|| {
            self.wrong(
                at,
                &format!("`{key}` is {}; write it in quotes", value.get_ref().type_str()),
            )
        })?;
        text.parse().map_err(|why: T::Err| {
            let why = format!("`{key}`: '{}' is {}", excerpt(text), excerpt(&why.to_string()));
            self.wrong(at, &why)
        })
    }

    fn rate(&self, value: &Value<'_>, key: &str) -> Result<BitsPerSec, String> {
        let rate: BitsPerSec = self.parsed(value, key)?;
        match rate.0 {
            0 => Err(self.wrong(value.span().start, &format!("`{key}` is no rate; 2Gb/s is"))),
            _ => Ok(rate),
        }
    }

    fn matcher(&self, key: &str, value: &Value<'_>) -> Result<Matcher, String> {
        let at = value.span().start;
        let values = match value.get_ref() {
            DeValue::Array(values) => values.iter().map(Spanned::get_ref).collect(),
            one => vec![one],
        };
        let names: Option<BTreeSet<String>> =
            values.into_iter().map(|one| one.as_str().map(str::to_owned)).collect();
        let names = names.filter(|names| !names.is_empty()).ok_or_else(|| {
            let why = format!("`{key}` is a name or a list of names, as in {key} = [\"a\", \"b\"]");
            self.wrong(at, &why)
        })?;
        if names.len() == 1 && names.contains("*") {
            return Ok(Matcher::Any);
        }
        let is_owner = key == "user" || key == "group";
        let is_name = |name: &str| match is_owner {
            true => is_account(name),
            false => {
                (1..=NAME_BYTES_MAX).contains(&name.len())
                    && !name.chars().any(|c| c.is_control() || c == '*')
            }
        };
        match names.iter().find(|name| !is_name(name)) {
            Some(name) => {
                let why = format!(
                    "'{}' cannot be the name of a {key}; names are compared as they are, and \"*\" alone is everybody",
                    excerpt(name)
                );
                Err(self.wrong(at, &why))
            }
            None => Ok(Matcher::OneOf(names)),
        }
    }

    fn share(&self, value: &Value<'_>, class: Class) -> Result<PolicyShare, String> {
        let wrong = |why: &str| self.wrong(value.span().start, why);
        if !LOW_CLASSES.contains(&class) {
            return Err(wrong(&format!(
                "{class} is served before others and has no share; best-effort, bulk and scavenger have"
            )));
        }
        let share = match value.get_ref() {
            DeValue::Integer(weight) if weight.radix() == 10 => {
                let weight = weight.as_str().parse().ok();
                weight.filter(|weight| (1..=WEIGHT_MAX).contains(weight)).map(PolicyShare::Weight)
            }
            DeValue::String(text) => {
                let percent =
                    text.strip_suffix('%').and_then(|percent| percent.trim().parse().ok());
                percent.filter(|percent| (1..=100).contains(percent)).map(PolicyShare::Percent)
            }
            _ => None,
        };
        share.ok_or_else(|| {
            wrong(&format!(
                "`share` is a weight from 1 to {WEIGHT_MAX}, or percent of a link from \"1%\" to \"100%\""
            ))
        })
    }
}

/// Refuses a rule that never counts.
fn check_covered(policy: &SitePolicy) -> Result<(), String> {
    for (place, rule) in policy.rules.iter().enumerate() {
        let Some(before) = policy.rules[..place].iter().find(|before| before.covers(rule)) else {
            continue;
        };
        return Err(format!(
            "{}: line {}: rule {} never counts, because rule {} of line {} matches all that it does; put it before rule {}, or remove it",
            policy.file, rule.line, rule.number, before.number, before.line, before.number
        ));
    }
    Ok(())
}

/// Refuses shares of more than a link, and shares that cannot be compared.
fn check_shares(policy: &SitePolicy) -> Result<(), String> {
    let mut sum = 0;
    let mut first: Option<(&PolicyRule, PolicyShare)> = None;
    for rule in &policy.rules {
        let Some(share) = rule.share else { continue };
        let (before, kind) = *first.get_or_insert((rule, share));
        let PolicyRule { number, line, .. } = rule;
        if std::mem::discriminant(&kind) != std::mem::discriminant(&share) {
            return Err(format!(
                "{}: line {line}: the share of rule {number} is {share} and that of rule {} is {kind}; all weights or all percents work",
                policy.file, before.number
            ));
        }
        if let PolicyShare::Percent(percent) = share {
            sum += percent;
        }
        if sum > 100 {
            return Err(format!(
                "{}: line {line}: with rule {number} the shares of all rules are {sum}%; up to 100% together work",
                policy.file
            ));
        }
    }
    Ok(())
}

/// Refuses a ceiling that a host's link cannot reach.
fn check_ceilings(policy: &SitePolicy) -> Result<(), String> {
    let Some(link) = policy.link else { return Ok(()) };
    let above = |rule: &&PolicyRule| rule.ceiling.is_some_and(|ceiling| ceiling > link);
    policy.rules.iter().find(above).map_or(Ok(()), |rule| {
        let ceiling = rule.ceiling.unwrap_or(link);
        Err(format!(
            "{}: line {}: the ceiling of rule {} is {ceiling}, above the link of {link}; up to {link} works",
            policy.file, rule.line, rule.number
        ))
    })
}
