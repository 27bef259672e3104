//! Commented-out code is refused: what is not needed is deleted, the history keeps it.
//!
//! # Model
//! The text behind `//` is code when it ends like a statement or a block and the parser takes it
//! for one. Prose fails to parse; a single word does not, so a statement must also hold one of `( =
//! :`.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(".rs") {
        for (at, line) in text.lines().enumerate() {
            let comment =
                line.trim_start().strip_prefix("//").filter(|rest| !rest.starts_with(['/', '!']));
            if comment.is_some_and(|comment| is_code(comment.trim())) {
                found.push(Finding::new(
                    path,
                    at + 1,
                    "holds commented-out code; delete it, the history keeps it",
                ));
            }
        }
    }
    found
}

fn is_code(text: &str) -> bool {
    let closed = if text.ends_with('{') { format!("{text} }}") } else { text.to_owned() };
    let ends_like_code = text.ends_with([';', '{']) || text.starts_with("#[");
    let item = || syn::parse_str::<syn::Item>(&closed).is_ok();
    let statement = || {
        text.contains(['(', '=', ':'])
            && syn::parse_str::<syn::Block>(&format!("{{ {closed} }}")).is_ok()
    };
    ends_like_code && (item() || statement() || text.starts_with("#["))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_code__statements_items_and_block_heads() {
        for text in [
            "let x = 1;",
            "foo(bar);",
            "use a::b;",
            "if x == 1 {",
            "for a in b() {",
            "fn f() {",
            "#[test]",
            "self.x = y;",
        ] {
            assert!(is_code(text), "{text}");
        }
    }

    #[test]
    fn is_code__prose_is_none() {
        for text in [
            "SAFETY: the length was checked above;",
            "first the head;",
            "done;",
            "I1: order holds (see above).",
            "see `f();`",
            "x = y",
        ] {
            assert!(!is_code(text), "{text}");
        }
    }

    #[test]
    fn check__documentation_may_show_code() {
        let tree = Tree::from_texts(&[(
            "a.rs",
            "//! let x = 1;\n/// let x = 1;\nfn a() {\n    // let x = 1;\n}\n",
        )]);
        assert_eq!(check(&tree).iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }
}
