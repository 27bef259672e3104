//! Reads a prototype of the table: what a C function returns and takes.
//!
//! # Not here
//! Anything that the table's rows do not contain: pointers to functions, arrays, names of
//! parameters left out.

use std::fmt;

use super::types::Type;

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its type in C, `const int *`.
    pub c: String,
    /// Its name.
    pub name: String,
    /// Whether it is made of the type that the function is for.
    pub is_of_type: bool,
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.c.ends_with('*') { "" } else { " " };
        write!(f, "{}{gap}{}", self.c, self.name)
    }
}

/// A prototype with `{}` left in its name.
#[derive(Debug)]
pub(super) struct Prototype {
    pub(super) returns: String,
    pub(super) returns_type: bool,
    pub(super) name: String,
    pub(super) parameters: Vec<Parameter>,
    pub(super) is_variadic: bool,
}

/// What stands for the function's type.
const TYPE: &str = "TYPE";

impl Prototype {
    /// Reads `text`, with `of` in place of `TYPE`.
    pub(super) fn parse(text: &str, of: Option<&Type>) -> Self {
        let (head, list) =
            text.trim_end_matches(')').split_once('(').expect("a prototype has parameters");
        let (returns, name) = split_name(head, of);
        let list = if list == "void" { "" } else { list };
        let words: Vec<&str> =
            list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        let parameters = words.iter().filter(|word| **word != "...").map(|word| {
            let (c, name) = split_name(word, of);
            Parameter { c, name, is_of_type: word.contains(TYPE) }
        });
        let returns_type = head.starts_with(TYPE);
        Self {
            returns,
            returns_type,
            name,
            parameters: parameters.collect(),
            is_variadic: words.contains(&"..."),
        }
    }
}

/// The type in front of the name, and the name.
fn split_name(text: &str, of: Option<&Type>) -> (String, String) {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_{}".contains(c);
    let name = text.rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
    let c = text[..text.len() - name.len()].trim_end();
    (of.map_or_else(|| c.to_owned(), |of| c.replace(TYPE, of.c)), name.to_owned())
}
