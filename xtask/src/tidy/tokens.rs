//! What a Rust source mentions, token by token: paths, words, and the keyword `unsafe`.
//!
//! # Model
//! Tokens are blind to comments and strings and see into macros, where a syntax tree does not.
//! `a::b`, `a::{b, c::d}` and `a::*` are read as paths wherever they stand, so one reader serves
//! `use` lines and code.

use std::collections::BTreeSet;
use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// A path of at least two segments; a glob ends in `*`, and so does a crate that gets another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsedPath {
    pub(super) segments: Vec<String>,
    /// The inline modules around it, outermost first.
    pub(super) inside: Vec<String>,
    pub(super) line: usize,
}

/// The mentions of one source.
#[derive(Default)]
pub(super) struct Tokens {
    pub(super) paths: Vec<UsedPath>,
    /// Every identifier outside `pub use` lines: a re-export passes a name on, it does not use it.
    pub(super) words: BTreeSet<String>,
    pub(super) unsafe_lines: Vec<usize>,
}

impl Tokens {
    pub(super) fn from_stream(stream: TokenStream) -> Self {
        let mut tokens = Self::default();
        tokens.read(stream, &mut Vec::new(), &[]);
        tokens
    }

    /// Reads `stream`; `prefix` is the path in front of a group `prefix::{...}`.
    fn read(&mut self, stream: TokenStream, inside: &mut Vec<String>, prefix: &[String]) {
        let mut trees = stream.into_iter().peekable();
        while let Some(tree) = trees.next() {
            match tree {
                TokenTree::Group(group) => self.read(group.stream(), inside, prefix),
                TokenTree::Ident(ident) => {
                    let line = ident.span().start().line;
                    match ident.to_string().as_str() {
                        "unsafe" => self.unsafe_lines.push(line),
                        "mod" => self.read_module(&mut trees, inside),
                        "as" if !prefix.is_empty() => drop(trees.next()),
                        "pub" => self.read_visibility(&mut trees, inside),
                        word => self.read_path(word, line, &mut trees, inside, prefix),
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' && !prefix.is_empty() => {
                    let line = punct.span().start().line;
                    self.push_path([prefix, &["*".to_owned()]].concat(), inside, line);
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn read_module(&mut self, trees: &mut Peekable<IntoIter>, inside: &mut Vec<String>) {
        let Some(TokenTree::Ident(name)) = trees.peek() else { return };
        let name = name.to_string();
        self.words.insert(name.clone());
        trees.next();
        if let Some(TokenTree::Group(body)) = trees.peek() {
            let body = body.stream();
            trees.next();
            inside.push(name);
            self.read(body, inside, &[]);
            inside.pop();
        }
    }

    /// After `pub`: keeps the words of a `pub use` line out of [`Tokens::words`], but not its
    /// paths.
    fn read_visibility(&mut self, trees: &mut Peekable<IntoIter>, inside: &mut Vec<String>) {
        if matches!(trees.peek(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
        {
            trees.next();
        }
        if !matches!(trees.peek(), Some(TokenTree::Ident(word)) if word == "use") {
            return;
        }
        let line: TokenStream = trees
            .by_ref()
            .take_while(|tree| !matches!(tree, TokenTree::Punct(end) if end.as_char() == ';'))
            .collect();
        let mut exported = Self::default();
        exported.read(line, inside, &[]);
        self.paths.append(&mut exported.paths);
    }

    fn read_path(
        &mut self,
        first: &str,
        line: usize,
        trees: &mut Peekable<IntoIter>,
        inside: &mut Vec<String>,
        prefix: &[String],
    ) {
        self.words.insert(first.to_owned());
        let mut segments = [prefix, &[first.to_owned()]].concat();
        while step_over_colons(trees) {
            match trees.peek() {
                Some(TokenTree::Ident(next)) => {
                    let next = next.to_string();
                    self.words.insert(next.clone());
                    segments.push(next);
                    trees.next();
                }
                Some(TokenTree::Group(group)) => {
                    let group = group.stream();
                    trees.next();
                    return self.read(group, inside, &segments);
                }
                Some(TokenTree::Punct(star)) if star.as_char() == '*' => {
                    segments.push("*".to_owned());
                    trees.next();
                    break;
                }
                _ => break,
            }
        }
        if segments.len() == 1
            && matches!(trees.peek(), Some(TokenTree::Ident(word)) if word == "as")
        {
            segments.push("*".to_owned());
        }
        self.push_path(segments, inside, line);
    }

    fn push_path(&mut self, segments: Vec<String>, inside: &[String], line: usize) {
        if segments.len() > 1 {
            self.paths.push(UsedPath { segments, inside: inside.to_vec(), line });
        }
    }
}

/// Consumes `::` if it comes next.
fn step_over_colons(trees: &mut Peekable<IntoIter>) -> bool {
    let joint = |tree: &TokenTree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ':' && p.spacing() == Spacing::Joint);
    if !trees.peek().is_some_and(joint) {
        return false;
    }
    trees.next();
    matches!(trees.next(), Some(TokenTree::Punct(second)) if second.as_char() == ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Tokens::from_stream(text.parse().unwrap())
            .paths
            .iter()
            .map(|path| path.segments.join("::"))
            .collect()
    }

    #[test]
    fn paths__use_groups_globs_and_macros_are_seen() {
        let found =
            paths("use a::{b, c::{d, *}, self as e}; fn f() -> x::Y { println!(\"{}\", g::h(1)) }");
        assert_eq!(found, ["a::b", "a::c::d", "a::c::*", "a::self", "x::Y", "g::h"]);
    }

    #[test]
    fn paths__a_type_annotation_is_no_path() {
        assert_eq!(paths("let a: b = c ? d : e; s { f: g::h }"), ["g::h"]);
    }

    #[test]
    fn paths__a_crate_under_another_name_counts_as_all_of_it() {
        assert_eq!(paths("use a as b;"), ["a::*"]);
    }

    #[test]
    fn paths__know_the_inline_module_they_stand_in() {
        let tokens = Tokens::from_stream("mod tests { use super::super::x; }".parse().unwrap());
        assert_eq!(tokens.paths[0].inside, ["tests"]);
        assert_eq!(tokens.paths[0].segments, ["super", "super", "x"]);
    }

    #[test]
    fn words__a_re_export_is_no_use() {
        let tokens = Tokens::from_stream(
            "pub use a::Passed; pub(crate) use a::Too; use a::Used;".parse().unwrap(),
        );
        assert!(tokens.words.contains("Used"));
        assert!(!tokens.words.contains("Passed") && !tokens.words.contains("Too"));
        assert_eq!(tokens.paths.len(), 3);
    }

    #[test]
    fn unsafe__a_lint_name_or_a_comment_is_not_the_keyword() {
        let tokens = Tokens::from_stream(
            "#![forbid(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }".parse().unwrap(),
        );
        assert_eq!(tokens.unsafe_lines, [3]);
    }
}
