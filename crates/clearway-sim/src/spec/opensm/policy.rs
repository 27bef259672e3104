//! Finds mistakes in a QoS policy file of OpenSM, given the opensm.conf of the same network: levels
//! that ports do not serve, rules that hold one way only, partitions that are not there.
//!
//! # Model
//! A client asks the subnet manager for a path and uses the level in the answer. The answer is that
//! of the first rule that fits the question; a rule with a source and a destination fits questions
//! from one to the other, and not the reverse.
//!
//! # Source
//! `doc/QoS_management_in_OpenSM.txt` and `doc/partition-config.txt` of OpenSM 3.3. A P_Key's upper
//! bit says full or limited membership and does not distinguish partitions (InfiniBand
//! specification volume 1, 10.9).

use std::collections::BTreeMap;

use super::{NO_LANE, OpensmConf, PortTables};

/// The bits of a P_Key that say which partition it is.
const PARTITION: u16 = 0x7fff;
/// The partition that is always there.
const DEFAULT_PARTITION: u16 = 0x7fff;
/// Sections, and the blocks inside them.
const SECTIONS: [&str; 5] =
    ["port-groups", "qos-setup", "qos-levels", "qos-match-rules", "qos-ulps"];
const BLOCKS: [&str; 4] = ["port-group", "qos-level", "qos-match-rule", "vlarb-tables"];
/// Kinds of ports that carry traffic of jobs.
type KindOfPort<'a> = (&'a str, &'a PortTables);

/// What gives a level to paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PolicyRule {
    line: u32,
    /// What a person calls it.
    name: String,
    /// The level itself, or the name of one.
    level: Option<u8>,
    level_name: Option<(u32, String)>,
    source: Vec<String>,
    destination: Vec<String>,
    /// Partitions in which it holds, with their lines.
    pkeys: Vec<(u32, u16)>,
    /// What else restricts it.
    others: Vec<String>,
}

/// A QoS policy file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::spec) struct Policy {
    /// Named levels: their lines and numbers; none for a number that is wrong.
    levels: BTreeMap<String, (u32, Option<u8>)>,
    groups: Vec<String>,
    rules: Vec<PolicyRule>,
    /// Sentences for values that cannot be, with their lines.
    wrong: Vec<(u32, String)>,
}

impl Policy {
    /// Reads the text of a policy file.
    ///
    /// # Errors
    /// The line of the first thing that is no part of one. A wrong value is a fault of a policy.
    pub(in crate::spec) fn parse(text: &str) -> Result<Self, (u32, String)> {
        let mut reader = PolicyReader::default();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                reader.take(line, content).map_err(|why| (line, why))?;
            }
        }
        if !reader.has_section {
            let known = SECTIONS.join(", ");
            return Err((1, format!("no section of a QoS policy is in this file: {known}")));
        }
        reader.section.map_or(Ok(reader.policy), |section| {
            Err((text.lines().count() as u32, format!("`end-{section}` is missing")))
        })
    }

    /// Returns what is wrong with it where ports are as `conf` says and partitions as given.
    pub(in crate::spec) fn faults(
        &self,
        conf: &OpensmConf,
        partitions: Option<&[u16]>,
    ) -> Vec<String> {
        let ports = [("adapters", &conf.adapters), ("switches", &conf.switches)];
        let wrong = self.wrong.iter().map(|(line, why)| format!("line {line}: {why}"));
        let mut faults: Vec<String> = wrong.collect();
        for (name, (line, level)) in &self.levels {
            if let Some(level) = level {
                level_faults((*line, &format!("level `{name}`"), *level), &ports, &mut faults);
            }
        }
        for rule in &self.rules {
            self.rule_faults(rule, &ports, &mut faults);
            for (line, pkey) in &rule.pkeys {
                let is_there = |partitions: &[u16]| {
                    partitions.iter().any(|known| known & PARTITION == pkey & PARTITION)
                };
                if partitions.is_some_and(|known| !is_there(known)) {
                    faults.push(format!(
                        "line {line}: no partition has P_Key 0x{pkey:04x}: the rule fits no path"
                    ));
                }
            }
        }
        faults
    }

    /// Returns the level that `rule` gives.
    fn level(&self, rule: &PolicyRule) -> Option<u8> {
        let named = rule.level_name.as_ref().and_then(|(_, name)| self.levels.get(name));
        rule.level.or_else(|| named.and_then(|(_, level)| *level))
    }

    fn rule_faults(&self, rule: &PolicyRule, ports: &[KindOfPort<'_>], faults: &mut Vec<String>) {
        if let Some(level) = rule.level {
            level_faults((rule.line, &format!("`{}`", rule.name), level), ports, faults);
        }
        if let Some((line, name)) = &rule.level_name
            && !self.levels.contains_key(name)
        {
            faults.push(format!(
                "line {line}: no qos-level is called `{name}`: OpenSM refuses the whole file and gives every path level 0"
            ));
        }
        for group in rule.source.iter().chain(&rule.destination) {
            if !self.groups.contains(group) {
                faults.push(format!(
                    "line {}: no port-group is called `{group}`: OpenSM refuses the whole file and gives every path level 0",
                    rule.line
                ));
            }
        }
        if rule.source == rule.destination {
            return;
        }
        let is_reverse = |other: &PolicyRule| {
            other.source == rule.destination
                && other.destination == rule.source
                && other.others == rule.others
                && self.level(other) == self.level(rule)
        };
        if !self.rules.iter().any(is_reverse) {
            let list = |groups: &[String]| {
                if groups.is_empty() { "anybody".to_owned() } else { groups.join(", ") }
            };
            faults.push(format!(
                "line {}: paths from {} to {} get a level, and those in the other direction do not: what the other side opens or answers on a path of its own \
                 travels at another level; add the rule with both exchanged",
                rule.line,
                list(&rule.source),
                list(&rule.destination)
            ));
        }
    }
}

/// Notes that ports drop, do not serve or do not distinguish a level.
fn level_faults(
    (line, what, level): (u32, &str, u8),
    ports: &[KindOfPort<'_>],
    faults: &mut Vec<String>,
) {
    for (who, tables) in ports {
        let lane = tables.lane_of_level[usize::from(level & 15)];
        let entries = || tables.high.iter().chain(&tables.low);
        let is_served = entries().any(|(served, weight)| *served == lane && *weight > 0);
        if lane == NO_LANE {
            faults.push(format!(
                "line {line}: {what} is service level {level}, which {who} drop (lane 15): such paths carry nothing"
            ));
        } else if !is_served {
            faults.push(format!(
                "line {line}: {what} is service level {level}, whose lane {lane} has no weight at {who}: such paths carry nothing"
            ));
        } else if level != 0 && lane == tables.lane_of_level[0] {
            faults.push(format!(
                "line {line}: {what} is service level {level}, which {who} do not map to a lane of its own: it travels with level 0 on lane {lane}"
            ));
        }
    }
}

/// Reads a policy line by line.
#[derive(Default)]
struct PolicyReader {
    policy: Policy,
    has_section: bool,
    section: Option<&'static str>,
    block: Option<&'static str>,
    /// Name and number of the block under way.
    name: Option<String>,
    level: Option<(u32, Option<u8>)>,
    rule: PolicyRule,
}

impl PolicyReader {
    fn take(&mut self, line: u32, content: &str) -> Result<(), String> {
        let known =
            |list: &[&'static str], word: &str| list.iter().find(|it| **it == word).copied();
        let ended = content.strip_prefix("end-");
        match (self.section, self.block) {
            (None, _) => {
                let section = known(&SECTIONS, content).ok_or_else(|| {
                    format!("`{content}` is no section of a QoS policy: {}", SECTIONS.join(", "))
                })?;
                (self.section, self.has_section) = (Some(section), true);
            }
            (Some(section), None) if ended == Some(section) => self.section = None,
            (Some(_), Some(block)) if ended == Some(block) => self.end(block)?,
            (Some("qos-ulps"), _) => self.ulp(line, content)?,
            (Some(_), Some(block)) => self.entry(line, block, content)?,
            (Some(section), None) => {
                let block = known(&BLOCKS, content)
                    .ok_or_else(|| format!("`{content}` begins no block of `{section}`"))?;
                (self.block, self.name, self.level) = (Some(block), None, None);
                self.rule = PolicyRule { line, name: block.to_owned(), ..PolicyRule::default() };
            }
        }
        Ok(())
    }

    /// Returns a value of a line, or takes note of what is wrong with it.
    fn value<T>(&mut self, line: u32, read: Result<T, String>) -> Option<T> {
        read.map_err(|why| self.policy.wrong.push((line, why))).ok()
    }

    fn entry(&mut self, line: u32, block: &str, content: &str) -> Result<(), String> {
        let (key, value) =
            content.split_once(':').ok_or_else(|| format!("`{content}` is no `key: value`"))?;
        let (key, value) = (key.trim(), value.trim());
        let list = || value.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>();
        match (block, key) {
            ("qos-level" | "port-group", "name") => self.name = Some(value.to_owned()),
            ("qos-level", "sl") => self.level = Some((line, self.value(line, level(value)))),
            ("qos-match-rule", "qos-level-name") => {
                self.rule.level_name = Some((line, value.to_owned()));
            }
            ("qos-match-rule", "source") => self.rule.source = list(),
            ("qos-match-rule", "destination") => self.rule.destination = list(),
            ("qos-match-rule", "pkey") => {
                for word in list() {
                    // Of a range both ends are looked at.
                    for end in word.split('-') {
                        let key = self.value(line, pkey(end));
                        self.rule.pkeys.extend(key.map(|key| (line, key)));
                    }
                }
                self.rule.others.push(content.to_owned());
            }
            ("qos-match-rule", "qos-class" | "service-id") => {
                self.rule.others.push(content.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, block: &str) -> Result<(), String> {
        self.block = None;
        let named = |name: Option<String>| name.ok_or_else(|| format!("this {block} has no name"));
        match block {
            "port-group" => self.policy.groups.push(named(self.name.take())?),
            "qos-level" => {
                let name = named(self.name.take())?;
                let level = self.level.ok_or_else(|| format!("level `{name}` has no `sl:`"))?;
                self.policy.levels.insert(name, level);
            }
            "qos-match-rule" => {
                let rule = std::mem::take(&mut self.rule);
                if rule.level_name.is_none() {
                    return Err("this rule has no `qos-level-name:`".to_owned());
                }
                self.policy.rules.push(rule);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes a line such as `any, pkey 0x0001 : 3`.
    fn ulp(&mut self, line: u32, content: &str) -> Result<(), String> {
        let (what, word) = content
            .rsplit_once(':')
            .ok_or_else(|| format!("`{content}` is no `PROTOCOL : LEVEL`"))?;
        let what = what.trim();
        let mut rule = PolicyRule { line, name: what.to_owned(), ..PolicyRule::default() };
        rule.level = self.value(line, level(word.trim()));
        if let Some((_, keys)) = what.split_once("pkey") {
            for word in keys.split([',', '-']).map(str::trim) {
                let key = self.value(line, pkey(word));
                rule.pkeys.extend(key.map(|key| (line, key)));
            }
        }
        self.policy.rules.push(rule);
        Ok(())
    }
}

fn level(word: &str) -> Result<u8, String> {
    word.parse()
        .ok()
        .filter(|level| *level <= 15)
        .ok_or_else(|| format!("`{word}` is no service level; they go from 0 to 15"))
}

fn pkey(word: &str) -> Result<u16, String> {
    let word = word.trim();
    let number = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    number.ok_or_else(|| format!("`{word}` is no P_Key; they go from 0x0001 to 0xffff"))
}

/// Returns the P_Keys of a partitions.conf.
///
/// # Errors
/// The line of the first definition whose key is none.
pub(in crate::spec) fn partitions(text: &str) -> Result<Vec<u16>, (u32, String)> {
    let (mut keys, mut definition) = (vec![DEFAULT_PARTITION], String::new());
    for (line, content) in (1..).zip(text.lines()) {
        let mut parts = content.split('#').next().unwrap_or_default().split(';').peekable();
        while let Some(part) = parts.next() {
            definition.push_str(part);
            // A definition is `NAME=KEY, flags : members ;`, on as many lines as it likes.
            if parts.peek().is_none() {
                break;
            }
            let head = definition.split(':').next().unwrap_or_default();
            let name = head.split(',').next().unwrap_or_default();
            if let Some((_, key)) = name.split_once('=') {
                keys.push(pkey(key).map_err(|why| (line, why))?);
            }
            definition.clear();
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse;
    use super::super::tests::STUDY;
    use super::*;

    const POLICY: &str = "port-groups\n port-group\n  name: Storage\n  port-guid: 0x1\n end-port-group\nend-port-groups\n\
        qos-levels\n qos-level\n  name: DEFAULT\n  sl: 0\n end-qos-level\n qos-level\n  name: Disk # slow\n  sl: 3\n end-qos-level\nend-qos-levels\n\
        qos-match-rules\n qos-match-rule\n  use: writes\n  destination: Storage\n  pkey: 0x8001\n  qos-level-name: Disk\n end-qos-match-rule\n\
        \n qos-match-rule\n  use: reads\n  source: Storage\n  pkey: 0x8001\n  qos-level-name: Disk\n end-qos-match-rule\nend-qos-match-rules\n\
        qos-ulps\n default : 0\n any, pkey 0x0001 : 2\nend-qos-ulps\n";
    const CONF: &str =
        "qos TRUE\nqos_vlarb_high 1:64\nqos_vlarb_low 0:64,2:64,3:64\nqos_sl2vl 0,1,2,3,4,15\n";

    fn found(conf: &str, policy: &str, partitions: Option<&str>) -> Vec<String> {
        let keys = partitions.map(|text| super::partitions(text).expect("partitions"));
        let conf = parse(conf).expect("an opensm.conf");
        Policy::parse(policy).expect("a policy").faults(&conf, keys.as_deref())
    }

    #[test]
    fn faults__a_policy_that_fits_has_none() {
        let partitions = "Default=0x7fff, ipoib : ALL=full ;\nWork=0x1, sl=0 : ALL ;\n";
        assert_eq!(found(CONF, POLICY, Some(partitions)), Vec::<String>::new());
        assert_eq!(found(CONF, POLICY, None), Vec::<String>::new());
    }

    #[test]
    fn faults__each_is_a_sentence_with_its_line() {
        let found_with = |from: &str, to: &str| {
            assert!(POLICY.contains(from), "{from}");
            found(CONF, &POLICY.replacen(from, to, 1), Some("Work=0x0001 : ALL ;"))
        };
        for (from, to, sentence) in [
            ("sl: 3", "sl: 5", "line 14: level `Disk` is service level 5, which adapters drop"),
            ("sl: 3", "sl: 4", "whose lane 4 has no weight at adapters"),
            ("sl: 3", "sl: 9", "which switches do not map to a lane of its own"),
            (": 2", ": 5", "line 34: `any, pkey 0x0001` is service level 5"),
            (
                "destination: Storage",
                "destination: Disks",
                "line 18: no port-group is called `Disks`",
            ),
            ("qos-level-name: Disk", "qos-level-name: Disks", "line 22: no qos-level is called"),
            ("pkey: 0x8001", "pkey: 0x8002", "line 21: no partition has P_Key 0x8002"),
            (
                "destination: Storage",
                "use: all",
                "line 25: paths from Storage to anybody get a level",
            ),
        ] {
            let found = found_with(from, to);
            assert!(found.iter().any(|said| said.contains(sentence)), "{to}: {found:#?}");
        }
    }

    #[test]
    fn faults__every_wrong_value_is_a_sentence_with_its_line() {
        let text = "qos-levels\n qos-level\n  name: Disk\n  sl: 16\n end-qos-level\nend-qos-levels\n\
            qos-match-rules\n qos-match-rule\n  pkey: 1, zero\n  qos-level-name: Disk\n end-qos-match-rule\nend-qos-match-rules\n\
            qos-ulps\n default : x\n any, pkey y : 2\nend-qos-ulps\n";
        let expected = [
            "line 4: `16` is no service level",
            "line 9: `zero` is no P_Key",
            "line 14: `x` is no service level",
            "line 15: `y` is no P_Key",
        ];
        let found = found(CONF, text, None);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (fault, expected) in found.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault}");
        }
    }

    #[test]
    fn faults__levels_that_the_study_drops_are_named() {
        let found = found(STUDY, "qos-ulps\n default : 0\n ipoib : 8\nend-qos-ulps\n", None);
        let expected = "line 3: `ipoib` is service level 8, which adapters drop (lane 15)";
        assert!(found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn parse__what_is_no_policy_is_refused_with_its_line() {
        for (text, line, why) in [
            ("", 1, "no section"),
            ("root:x:0:0\n", 1, "is no section"),
            ("qos-ulps\n default : 0\n", 2, "`end-qos-ulps` is missing"),
            ("qos-levels\n qos-level\n  sl: 1\n end-qos-level\n", 4, "has no name"),
            ("qos-levels\n qos-level default\n", 2, "begins no block"),
            ("qos-levels\n qos-level\n  sl 1\n", 3, "is no `key: value`"),
        ] {
            let (at, said) = Policy::parse(text).expect_err(text);
            assert!(at == line && said.contains(why), "{text}: {at}: {said}");
        }
        assert_eq!(partitions("A=0x2;B=x : ALL;\n").expect_err("no key").0, 1);
        assert_eq!(partitions("# none\nA=0x2, sl=3\n  : ALL;").expect("keys"), [0x7fff, 2]);
    }

    proptest! {
        #[test]
        fn parse__any_text_gives_an_answer(text in ".{0,200}", section in 0usize..5, block in 0usize..4) {
            let _ = Policy::parse(&text);
            let _ = partitions(&text);
            let (section, block) = (SECTIONS[section], BLOCKS[block]);
            let inside = format!("{section}\n {block}\n {text}\n end-{block}\nend-{section}\n");
            if let Ok(policy) = Policy::parse(&inside) {
                let conf = parse("qos TRUE\n").expect("an opensm.conf");
                let _ = policy.faults(&conf, Some(&[1]));
            }
        }
    }
}
