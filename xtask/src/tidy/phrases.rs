//! Phrases that slow a reader down; what is left of them in comments and documents may only become
//! fewer.
//!
//! # Model
//! Comment lines that follow each other are one passage, as are the lines of a document up to a
//! blank one; a list item, a heading and a cell of a table are passages of their own. Code in them
//! (fences, spans between backticks) does not count. The counts by crate, and the count of all
//! documents together under the name [`DOCUMENTS`], stand in `xtask/ratchet.txt`; a crate without
//! an entry has none. Records of runs keep their words.

use super::Finding;
use super::ratchet::{self, Ratchet, Subject};
use super::repeats::listed;
use super::tree::Tree;

/// The name under which all documents are counted.
pub(super) const DOCUMENTS: &str = "documents";

/// Phrases, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("shall be", "`is`, `must be`, or the verb itself"),
    ("so many", "`this many`, `that many` or `as many as`"),
    ("is told", "`is notified`, `gets` or `learns`"),
    ("are told", "`are notified`, `get` or `learn`"),
    ("goes on with", "`continues with`"),
];

/// A sentence whose subject this word is has no subject that a reader can point at.
const BARE_SUBJECT: &str = "Who";

/// Documents whose words are those of the day on which they were written.
const RECORDS: &str = "bench/runs/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let ratchet = Ratchet::from_tree(tree);
    let mut found = Vec::new();
    let packages = tree
        .packages
        .iter()
        .map(|package| (package.name.as_str(), format!("{}/Cargo.toml", package.dir)));
    for (name, path) in packages.chain([(DOCUMENTS, ratchet::PATH.to_owned())]) {
        let allowed = ratchet.allowed(&Subject::Phrases { package: name.to_owned() }).unwrap_or(0);
        let places = phrases(tree, name);
        if places.len() > allowed {
            found.push(Finding::new(path, 1, sentence(name, places, allowed)));
        }
    }
    for entry in &ratchet.entries {
        if let Subject::Phrases { package } = &entry.subject
            && phrases(tree, package).is_empty()
        {
            let sentence = "counts no phrase that is left; `cargo xtask tidy --update` removes it";
            found.push(Finding::new(ratchet::PATH, entry.line, sentence));
        }
    }
    found
}

fn sentence(name: &str, places: Vec<String>, allowed: usize) -> String {
    let whose = if name == DOCUMENTS { "the documents" } else { "comments of this crate" };
    let instead = PHRASES.iter().map(|(phrase, instead)| format!("for `{phrase}` write {instead}"));
    let instead = instead.collect::<Vec<_>>().join("; ");
    let count = places.len();
    format!(
        "{count} phrases of {whose} slow a reader down, {allowed} may; {instead}; for a sentence that begins with \
         `{BARE_SUBJECT}` name the subject: {}",
        listed(places.into_iter())
    )
}

/// Where the comments of `package`, or all documents for [`DOCUMENTS`], hold such a phrase.
pub(super) fn phrases(tree: &Tree, package: &str) -> Vec<String> {
    let ending = if package == DOCUMENTS { ".md" } else { ".rs" };
    let is_meant = |path: &str| match package {
        DOCUMENTS => !path.starts_with(RECORDS),
        package => tree.package_of(path).is_some_and(|owner| owner.name == package),
    };
    let mut places = Vec::new();
    for (path, text) in tree.texts(ending).filter(|(path, _)| is_meant(path)) {
        for passage in passages(text, ending == ".rs") {
            places.extend(
                passage.hits().into_iter().map(|(line, what)| format!("{path}:{line} `{what}`")),
            );
        }
    }
    places
}

/// Words that belong together, without their code.
#[derive(Default)]
struct Passage {
    text: String,
    /// Where each line begins in `text`, and its number.
    lines: Vec<(usize, usize)>,
}

impl Passage {
    fn push(&mut self, line: usize, words: &str) {
        self.lines.push((self.text.len(), line));
        self.text.push_str(words.trim());
        self.text.push(' ');
    }

    fn line_at(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= at).map_or(0, |(_, line)| *line)
    }

    /// The phrases in this passage, with their lines.
    fn hits(&self) -> Vec<(usize, &'static str)> {
        let text = without_code(&self.text);
        let lower = text.to_ascii_lowercase();
        let mut hits = Vec::new();
        for (phrase, _) in PHRASES {
            let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let is_word = |at: usize| {
                let bytes = lower.as_bytes();
                !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before)))
                    && !is_letter(bytes.get(at + phrase.len()))
            };
            hits.extend(
                lower
                    .match_indices(phrase)
                    .filter(|(at, _)| is_word(*at))
                    .map(|(at, _)| (at, *phrase)),
            );
        }
        hits.extend(
            sentences(&text)
                .filter(|(_, sentence)| is_bare(sentence))
                .map(|(at, _)| (at, BARE_SUBJECT)),
        );
        hits.sort_unstable();
        hits.into_iter().map(|(at, what)| (self.line_at(at), what)).collect()
    }
}

/// The passages of a Rust source or of a document.
fn passages(text: &str, is_rust: bool) -> Vec<Passage> {
    let (mut all, mut open, mut in_fence) = (Vec::new(), Passage::default(), false);
    for (at, line) in text.lines().enumerate() {
        let words = if is_rust { line.trim_start().strip_prefix("//") } else { Some(line) };
        let words = words
            .map(|words| if is_rust { words.trim_start_matches(['/', '!']) } else { words }.trim());
        let is_fence = words.is_some_and(|words| words.starts_with("```"));
        in_fence = words.is_some() && in_fence != is_fence;
        let Some(words) = words.filter(|words| !words.is_empty() && !is_fence && !in_fence) else {
            all.push(std::mem::take(&mut open));
            continue;
        };
        let (is_new, words) = item(words);
        if is_new {
            all.push(std::mem::take(&mut open));
        }
        if words.starts_with('|') {
            for cell in words.split('|') {
                let mut passage = Passage::default();
                passage.push(at + 1, cell);
                all.push(passage);
            }
        } else {
            open.push(at + 1, words);
        }
    }
    all.push(open);
    all
}

/// Whether a line begins a list item, a heading or a row of a table, and the line without the mark
/// of the first two.
fn item(line: &str) -> (bool, &str) {
    let number = line.trim_start_matches(|mark: char| mark.is_ascii_digit());
    let marks = ["- ", "* ", "> "];
    if let Some(rest) = marks.iter().find_map(|mark| line.strip_prefix(mark)) {
        (true, rest)
    } else if line.starts_with('#') {
        (true, line.trim_start_matches('#').trim_start())
    } else if let (true, Some(rest)) = (number.len() < line.len(), number.strip_prefix(". ")) {
        (true, rest)
    } else {
        (line.starts_with('|'), line)
    }
}

/// `text` with every letter between backticks replaced, so that places stay.
fn without_code(text: &str) -> String {
    let mut is_code = false;
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        is_code ^= letter == '`';
        if is_code && letter != '`' {
            plain.extend(std::iter::repeat_n('x', letter.len_utf8()));
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// The sentences of a passage and where they begin; what follows a colon counts as one.
fn sentences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let ends = text.match_indices(['.', '!', '?', ':']).map(|(at, _)| at + 1);
    let ends = ends.filter(|end| {
        text[*end..].trim_start_matches(['*', ')', '"']).starts_with(char::is_whitespace)
    });
    let mut ends: Vec<usize> = ends.collect();
    ends.push(text.len());
    let mut start = 0;
    ends.into_iter().map(move |end| {
        let from = std::mem::replace(&mut start, end);
        let sentence = text[from..end].trim_start_matches([' ', '*', ')', '(', '"', '[']);
        (end - sentence.len(), sentence)
    })
}

/// Whether the subject of `sentence` is [`BARE_SUBJECT`]; a question may begin so.
fn is_bare(sentence: &str) -> bool {
    let rest = sentence.strip_prefix(BARE_SUBJECT).and_then(|rest| rest.strip_prefix(' '));
    rest.is_some_and(|rest| rest.starts_with(char::is_lowercase))
        && !sentence.trim_end().ends_with('?')
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn tree(ratchet: &str, source: &str, document: &str) -> Tree {
        let texts =
            [(ratchet::PATH, ratchet), ("crates/a/src/lib.rs", source), ("docs/a.md", document)];
        Tree::with_packages(&texts, vec![Package::library("a", &[])])
    }

    fn in_source(source: &str) -> usize {
        phrases(&tree("", source, ""), "a").len()
    }

    fn in_document(document: &str) -> usize {
        phrases(&tree("", "", document), DOCUMENTS).len()
    }

    #[test]
    fn check__each_phrase_is_found_in_comments_and_documents() {
        for (phrase, _) in PHRASES {
            assert_eq!(in_source(&format!("/// It {phrase} it.\nfn f() {{}}\n")), 1, "{phrase}");
            assert_eq!(in_document(&format!("It {phrase} it.\n")), 1, "{phrase}");
        }
        let found = check(&tree("", "//! It is told.\n", "They are told.\n"));
        assert_eq!(found.len(), 2);
        assert!(found[0].sentence.contains("1 phrases of comments of this crate"), "{}", found[0]);
        assert!(found[0].sentence.ends_with("crates/a/src/lib.rs:1 `is told`"), "{}", found[0]);
        assert!(found[1].sentence.ends_with("docs/a.md:1 `are told`"), "{}", found[1]);
    }

    #[test]
    fn phrases__a_line_break_hides_nothing_and_the_line_is_right() {
        let source = "fn f() {\n    // First it\n    // waits, and so\n    // many wait.\n}\n";
        assert_eq!(phrases(&tree("", source, ""), "a"), ["crates/a/src/lib.rs:3 `so many`"]);
        assert_eq!(in_document("It shall\n\nbe done.\n"), 0);
    }

    #[test]
    fn phrases__whole_words_only_and_no_code() {
        assert_eq!(in_source("/// It is toldest, `so many` and also many.\n"), 0);
        assert_eq!(
            in_source("/// ```\n/// // shall be\n/// ```\nfn f() { g(\"it is told\"); }\n"),
            0
        );
        assert_eq!(in_document("```text\nit is told\n```\nIt `is told`.\n"), 0);
    }

    #[test]
    fn phrases__a_sentence_that_begins_with_the_bare_subject() {
        for text in [
            "Who sends reads.",
            "It ends. Who sends reads.",
            "- **Who sends** reads.",
            "| a | Who sends |",
        ] {
            assert_eq!(in_document(text), 1, "{text}");
        }
        for text in
            ["Who sends?", "A rank who sends.", "Who is who? Nobody.", "WHO sends.", "Who, then."]
        {
            assert_eq!(in_document(text), 0, "{text}");
        }
    }

    #[test]
    fn phrases__records_of_runs_keep_their_words() {
        let texts = [("bench/runs/x/README.md", "It is told."), ("README.md", "It is told.")];
        assert_eq!(phrases(&Tree::from_texts(&texts), DOCUMENTS), ["README.md:1 `is told`"]);
    }

    #[test]
    fn check__a_recorded_count_may_fall_but_not_rise() {
        let two = "//! It is told. It is told.\n";
        assert_eq!(check(&tree("phrases a 2\n", two, "")), []);
        assert_eq!(check(&tree("phrases a 3\n", two, "")), []);
        assert_eq!(check(&tree("phrases a 1\n", two, "")).len(), 1);
        assert_eq!(check(&tree("phrases documents 1\n", "", "It is told.\n")), []);
    }

    #[test]
    fn check__a_count_that_is_not_needed_is_refused() {
        assert_eq!(check(&tree("phrases a 1\n", "", "")).len(), 1);
        assert_eq!(check(&tree("phrases gone 1\n", "", "")).len(), 1);
    }
}
