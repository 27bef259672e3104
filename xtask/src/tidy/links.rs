//! Links of Markdown files lead to files and headings that exist, and so do the paths they show in
//! backquotes.
//!
//! # Not here
//! Links into the network: a test that needs it would fail for reasons outside this tree.

use super::Finding;
use super::tree::Tree;

/// Where a path in backquotes is taken for one of this tree.
const ROOTS: &[&str] = &["crates/", "xtask/", "docs/", "scenarios/", ".ci/", ".cargo/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(".md") {
        for (line, prose) in prose(text) {
            for target in targets(prose) {
                if let Some(sentence) = fault(tree, path, target) {
                    found.push(Finding::new(path, line, sentence));
                }
            }
            let shown = prose.split('`').skip(1).step_by(2);
            for shown in shown.filter(|shown| is_path(shown) && !tree.has(shown)) {
                found.push(Finding::new(
                    path,
                    line,
                    format!("shows `{shown}`, which does not exist; correct or remove it"),
                ));
            }
        }
    }
    found
}

/// The lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// The targets of `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let reference = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .map(|(_, target)| target.trim());
    inline.chain(reference).collect()
}

fn fault(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) =
        target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() { from.to_owned() } else { join(from, file) };
    if !tree.has(&path) {
        return Some(format!(
            "links to `{target}`, but there is no `{path}`; correct or remove the link"
        ));
    }
    let heading = heading.filter(|_| path.ends_with(".md"))?;
    let known = tree
        .text(&path)
        .is_some_and(|text| prose(text).any(|(_, line)| anchor(line).as_deref() == Some(heading)));
    (!known).then(|| {
        format!("links to `{target}`, but `{path}` has no such heading; correct or remove the link")
    })
}

/// `target` as seen from the directory of the file `from`.
fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor that forges give to a heading line: lower case, hyphens for spaces, no other marks.
fn anchor(line: &str) -> Option<String> {
    let heading = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

/// True for text in backquotes that names a place of this tree without wildcards.
fn is_path(shown: &str) -> bool {
    ROOTS.iter().any(|root| shown.starts_with(root))
        && !shown.contains(['*', '<', '{', ' ', ':', '$'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> Vec<usize> {
        let texts = [
            ("docs/a.md", text),
            ("docs/b.md", "# Life of one message\n"),
            ("README.md", ""),
            ("crates/x/y.rs", ""),
        ];
        check(&Tree::from_texts(&texts)).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn check__links_that_lead_somewhere_are_fine() {
        let text = "# Own\n[a](b.md) [b](b.md#life-of-one-message) [c](../README.md) [d](#own) [e](https://x.y/z)\n[r]: ../crates/x\n";
        assert!(check_text(text).is_empty());
        assert!(
            check_text("```\n[a](gone.md)\n```\n`crates/x/y.rs` `crates/*/gone.rs`").is_empty()
        );
    }

    #[test]
    fn check__missing_files_headings_and_shown_paths_are_found() {
        assert_eq!(
            check_text("[a](gone.md)\n[b](b.md#gone)\n[c]: gone\n`crates/x/gone.rs`\n[d](#gone)\n"),
            [1, 2, 3, 4, 5]
        );
    }
}
