//! Expands lists of hosts as Slurm writes them: `n[1-2,07-12],m3`.
//!
//! # Invariants
//! I1. The number of hosts is known, and refused when it is too large, before the first is made.

use super::LaunchError;

/// Most hosts of a list: more than the largest machine has.
pub const HOSTS_MAX: usize = 1 << 16;

/// Longest name of a host: that of DNS.
const NAME_MAX: usize = 255;

/// Digits of a number in brackets; with more it would not fit.
const DIGITS_MAX: usize = 9;

/// Returns the hosts of `list`, in its order. Numbers in brackets keep the width of the first of
/// their range.
///
/// # Errors
/// An open bracket, a range that is none or runs backwards, a name that no host has, or more than
/// 65536 hosts.
pub fn expand(list: &str) -> Result<Vec<String>, LaunchError> {
    expand_within(list)
        .map_err(|what| LaunchError::HostList { list: list.chars().take(60).collect(), what })
}

/// A part of a name: text, or the numbers of a bracket.
enum NamePart<'a> {
    Text(&'a str),
    Numbers(Vec<NumberRange>),
}

/// Numbers from `first` to `last` with at least `width` digits.
struct NumberRange {
    first: u32,
    last: u32,
    width: usize,
}

impl NumberRange {
    fn count(&self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

fn expand_within(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        let parts = parts(item)?;
        let count = parts.iter().try_fold(1_usize, |count, part| match part {
            NamePart::Text(_) => Some(count),
            NamePart::Numbers(ranges) => {
                ranges.iter().map(NumberRange::count).sum::<usize>().checked_mul(count)
            }
        });
        if count.is_none_or(|count| count > HOSTS_MAX - hosts.len()) {
            return Err(format!("it has more than {HOSTS_MAX} hosts"));
        }
        let mut names = vec![String::new()];
        for part in &parts {
            names = names
                .iter()
                .flat_map(|name| endings(part).map(move |end| format!("{name}{end}")))
                .collect();
        }
        names.iter().try_for_each(|name| check_name(name))?;
        hosts.append(&mut names);
    }
    Ok(hosts)
}

/// Checks that `name` can be a host's: letters, digits and `. _ -`, perhaps with a user in front,
/// and no option of ssh.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with('-')
        || !name.chars().all(is_fine)
    {
        let shown: String = name.chars().take(40).collect();
        return Err(format!("`{}` is not the name of a host", shown.escape_default()));
    }
    Ok(())
}

/// Splits at the commas outside brackets.
fn items(list: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let (mut start, mut is_inside) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return Err("brackets do not match".to_owned()),
            ',' if !is_inside => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a bracket is not closed".to_owned());
    }
    items.push(&list[start..]);
    Ok(items)
}

fn parts(item: &str) -> Result<Vec<NamePart<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = item;
    while let Some((text, inside)) = rest.split_once('[') {
        let (inside, after) = inside.split_once(']').ok_or("a bracket is not closed")?;
        parts.push(NamePart::Text(text));
        parts.push(NamePart::Numbers(inside.split(',').map(range).collect::<Result<_, _>>()?));
        rest = after;
    }
    parts.push(NamePart::Text(rest));
    Ok(parts)
}

fn range(text: &str) -> Result<NumberRange, String> {
    let number = |digits: &str| {
        let is_number = (1..=DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|_| is_number)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(low), Some(high)) if low <= high => {
            Ok(NumberRange { first: low, last: high, width: first.len() })
        }
        _ => Err(format!(
            "`{}` is no range of numbers",
            text.chars().take(30).collect::<String>().escape_default()
        )),
    }
}

/// Returns what `part` adds to a name, one by one.
fn endings<'a>(part: &'a NamePart<'a>) -> Box<dyn Iterator<Item = String> + 'a> {
    match part {
        NamePart::Text(text) => Box::new(std::iter::once((*text).to_owned())),
        NamePart::Numbers(ranges) => Box::new(ranges.iter().flat_map(|range| {
            let width = range.width;
            (range.first..=range.last).map(move |number| format!("{number:0width$}"))
        })),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expand__ranges_keep_their_width() {
        assert_eq!(
            expand("n[1-2,07-12],m3").unwrap(),
            "n1 n2 n07 n08 n09 n10 n11 n12 m3".split(' ').collect::<Vec<_>>()
        );
        assert_eq!(expand("n[9-11]").unwrap(), ["n9", "n10", "n11"]);
        assert_eq!(expand("login").unwrap(), ["login"]);
    }

    #[test]
    fn expand__several_brackets_multiply() {
        assert_eq!(
            expand("r[1-2]n[1-2]-ib").unwrap(),
            ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]
        );
    }

    #[test]
    fn expand__what_is_no_list_is_refused() {
        for list in [
            "",
            "n[",
            "n]",
            "n[1-2",
            "n[[1]]",
            "n[2-1]",
            "n[a]",
            "n[]",
            "n[1-]",
            "a,,b",
            "-oProxyCommand=x",
            "a b",
            "n[+1]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
    }

    #[test]
    fn expand__huge_lists_are_refused_before_they_are_made() {
        for list in
            ["n[1-999999999]", "n[0-9999]m[0-9999]", "n[1-65536],m", "n[1-99999999999999999999]"]
        {
            assert!(expand(list).is_err(), "{list}");
        }
        assert_eq!(expand("n[1-65536]").unwrap().len(), HOSTS_MAX);
    }

    proptest! {
        #[test]
        fn expand__any_text_is_expanded_or_refused(list in "[n0-9,\\[\\]-]{0,30}", other in any::<String>()) {
            for list in [list, other] {
                if let Ok(hosts) = expand(&list) {
                    prop_assert!(!hosts.is_empty() && hosts.len() <= HOSTS_MAX);
                }
            }
        }
    }
}
