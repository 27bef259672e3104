//! Texts that must not stand anywhere in the tree, each with its reason.
//!
//! # Model
//! A pattern is searched line by line. Patterns are put together from halves, so that this file
//! does not contain them.

use super::Finding;
use super::tree::Tree;

/// One forbidden text.
struct Forbidden {
    pattern: &'static str,
    /// Endings of the files in which it is searched; empty for all files.
    endings: &'static [&'static str],
    reason: &'static str,
}

const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        pattern: concat!("to", "do!("),
        endings: &[".rs"],
        reason: "unfinished code does not land; write it or leave it out",
    },
    Forbidden {
        pattern: concat!("unimple", "mented!("),
        endings: &[".rs"],
        reason: "unfinished code does not land; refuse the case with an error",
    },
    Forbidden {
        pattern: concat!("db", "g!("),
        endings: &[".rs"],
        reason: "left over from debugging; delete it",
    },
    Forbidden {
        pattern: concat!("// TO", "DO"),
        endings: &[".rs"],
        reason: "a plan is no comment; do it, or write an issue",
    },
    Forbidden {
        pattern: concat!("FIX", "ME"),
        endings: &[".rs", ".md", ".toml", "run"],
        reason: "a known fault is no comment; mend it, or write an issue",
    },
    Forbidden {
        pattern: concat!("#[ig", "nore"),
        endings: &[".rs"],
        reason: "an ignored test proves nothing; skip at run time with a printed reason",
    },
    Forbidden {
        pattern: concat!("allow(dead", "_code"),
        endings: &[".rs"],
        reason: "dead code is deleted, not excused",
    },
    Forbidden {
        pattern: concat!("<<<<", "<<< "),
        endings: &[],
        reason: "left over from a merge; decide and delete the marker",
    },
    Forbidden {
        pattern: concat!("crates", ".io"),
        endings: &[".rs", ".md", ".toml", "run", ".yml"],
        reason: "the registry is cargo's configuration, not this tree's; name the crate",
    },
    Forbidden {
        pattern: concat!("pypi", ".org"),
        endings: &[],
        reason: "the registry is the client's configuration, not this tree's; name the package",
    },
    Forbidden {
        pattern: concat!("npmjs", ".org"),
        endings: &[],
        reason: "the registry is the client's configuration, not this tree's; name the package",
    },
    Forbidden {
        pattern: concat!("deb.debian", ".org"),
        endings: &[],
        reason: "the mirror is the system's configuration, not this tree's; name the package",
    },
    Forbidden {
        pattern: concat!("/ho", "me/"),
        endings: &[".rs", ".toml", "run"],
        reason: "a path on one person's machine; make it relative, or take it from the environment",
    },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts("") {
        let applies = |rule: &&Forbidden| {
            rule.endings.is_empty() || rule.endings.iter().any(|end| path.ends_with(end))
        };
        for rule in FORBIDDEN.iter().filter(applies) {
            let hits = text.lines().enumerate().filter(|(_, line)| line.contains(rule.pattern));
            found.extend(hits.map(|(at, _)| {
                Finding::new(
                    path,
                    at + 1,
                    format!("`{}` may not stand here: {}", rule.pattern.trim(), rule.reason),
                )
            }));
        }
    }
    found.extend(check_std(tree));
    found
}

/// `extern crate std` compiles inside a `no_std` crate and opens the door to clocks and sockets.
fn check_std(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust.iter().filter(|file| file.items.is_no_std) {
        let source = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (path, text) in tree.texts(".rs").filter(|(path, _)| path.starts_with(source)) {
            let mut before = "";
            for (at, line) in text.lines().enumerate() {
                if line.trim_start().starts_with("extern crate std")
                    && before.trim() != "#[cfg(test)]"
                {
                    let sentence = "`extern crate std` stands in a `no_std` crate; only tests may, below `#[cfg(test)]`";
                    found.push(Finding::new(path, at + 1, sentence));
                }
                before = line;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check__every_forbidden_text_is_found() {
        for rule in FORBIDDEN {
            let path = format!("a/x{}", rule.endings.first().unwrap_or(&".md"));
            let text = format!("\n// {}\n", rule.pattern);
            let found = check(&Tree::from_texts(&[(&path, &text)]));
            assert!(found.iter().any(|finding| finding.line == 2), "{}", rule.pattern);
        }
    }

    #[test]
    fn check__std_in_a_no_std_crate_only_for_tests() {
        let lib = |text: &str| check(&Tree::from_texts(&[("a/src/lib.rs", text)])).len();
        assert_eq!(lib("#![no_std]\nextern crate alloc;\n#[cfg(test)]\nextern crate std;\n"), 0);
        assert_eq!(lib("#![no_std]\nextern crate std;\n"), 1);
        assert_eq!(lib("extern crate std;\n"), 0);
    }
}
