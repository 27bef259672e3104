//! Says which functions the library has: a row for each, as the standard writes it, over the types
//! that the standard lists.
//!
//! # Model
//! A row is a prototype of the standard with `{}` where the name of a type or a size stands and
//! `TYPE` where the type itself does, and the call that answers it. [`functions`] multiplies rows
//! by types and, where a row takes a context, by two. The entries of the library, its headers and
//! the tests of both are made from that list, so a function is added by adding a row.
//!
//! In a call `{T}` is the type, `{ctx}` the context; `at` and `own` say which memory a pointer
//! means: symmetric, or the caller's.
//!
//! # Source
//! OpenSHMEM 1.6, chapter 9 and the tables of types in it; "Deprecated API" for what is deprecated.
//!
//! # Invariants
//! I1. This file uses nothing but the standard library, for `build.rs` reads it as well.

mod newer;
mod prototype;
mod queues;
mod rows;
pub mod types;

pub use prototype::Parameter;
use prototype::Prototype;
pub use rows::ROWS;
use types::{Names, TYPES, Type};

/// What a row is multiplied by.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// Types, by name.
    Types(Names),
    /// Elements of this many bits.
    Bits(&'static [u32]),
    /// Bytes, under the name `mem`.
    Bytes,
    /// Nothing: one function.
    Once,
}

/// Whether programs should still use a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Yes.
    Current,
    /// The standard has something better, and demands both.
    Deprecated,
}

/// Whether there is a second function whose first argument is a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contexts {
    /// Yes.
    Any,
    /// No.
    Default,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it is multiplied by.
    pub over: Over,
    /// Whether it is current.
    pub standing: Standing,
    /// Whether it takes a context.
    pub contexts: Contexts,
    /// In C.
    pub prototype: &'static str,
    /// In Rust.
    pub call: &'static str,
}

const fn row(over: Over, prototype: &'static str, call: &'static str) -> Row {
    Row { over, standing: Standing::Current, contexts: Contexts::Default, prototype, call }
}

const fn contexts(over: Over, prototype: &'static str, call: &'static str) -> Row {
    Row { over, standing: Standing::Current, contexts: Contexts::Any, prototype, call }
}

const fn old(over: Over, prototype: &'static str, call: &'static str) -> Row {
    Row { over, standing: Standing::Deprecated, contexts: Contexts::Default, prototype, call }
}

/// One function of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it returns, in C.
    pub returns: String,
    /// Whether that is the type that the function is for.
    pub returns_type: bool,
    /// What it takes, in C.
    pub parameters: Vec<Parameter>,
    /// True when more arguments may follow.
    pub is_variadic: bool,
    /// Whether programs should still use it.
    pub standing: Standing,
    /// The name under which it is one of several that the types of the arguments choose among.
    pub generic: Option<String>,
    /// The type that it is for.
    pub of: Option<&'static Type>,
    /// The call that answers it, in Rust.
    pub call: String,
}

impl Function {
    /// The name of the same function for tools that put their own in front of it.
    pub fn profiling_name(&self) -> String {
        format!("p{}", self.name)
    }

    /// Whether an object of the function's type travels by value, and not behind a pointer.
    pub fn moves_type(&self) -> bool {
        let by_value = |parameter: &Parameter| parameter.is_of_type && !parameter.c.ends_with('*');
        self.returns_type || self.parameters.iter().any(by_value)
    }
}

/// All functions of the standard, in the order of the table.
pub fn functions() -> Vec<Function> {
    ROWS.iter().flat_map(|rows| rows.iter()).flat_map(Row::functions).collect()
}

/// The functions of queues, which are not of the standard.
pub fn queue_functions() -> Vec<Function> {
    queues::ROWS.iter().flat_map(Row::functions).collect()
}

impl Row {
    /// The functions of this row: for each type, and for each of these the one with a context.
    fn functions(&self) -> Vec<Function> {
        let mut all = Vec::new();
        for (word, of, rust) in self.over.each() {
            let function = self.function(word.as_deref().unwrap_or_default(), of, rust);
            let with_context = (self.contexts == Contexts::Any).then(|| function.with_context());
            all.push(function.in_context("Context::DEFAULT"));
            all.extend(with_context);
        }
        all
    }

    fn function(&self, word: &str, of: Option<&'static Type>, rust: String) -> Function {
        let Prototype { returns, returns_type, name, parameters, is_variadic } =
            Prototype::parse(self.prototype, of);
        let generic = of.map(|_| name.replace("{}_", "")).filter(|name| has_generic(name));
        Function {
            name: name.replace("{}", word),
            returns,
            returns_type,
            parameters,
            is_variadic,
            standing: self.standing,
            generic,
            of,
            call: self.call.replace("{T}", &rust),
        }
    }
}

impl Function {
    fn in_context(mut self, context: &str) -> Self {
        self.call = self.call.replace("{ctx}", context);
        self
    }

    /// The same function with a context in front: `shmem_ctx_int_put` for `shmem_int_put`.
    fn with_context(&self) -> Self {
        let mut other = self.clone().in_context("Context::from_raw(ctx)");
        other.name = self.name.replacen("shmem_", "shmem_ctx_", 1);
        other.parameters.insert(
            0,
            Parameter { c: "shmem_ctx_t".to_owned(), name: "ctx".to_owned(), is_of_type: false },
        );
        other
    }
}

/// Whether C11 has the name: it has none for what was deprecated before it.
fn has_generic(name: &str) -> bool {
    name != "shmem_wait" && !name.ends_with("_to_all")
}

/// The name of elements of 128 bits: none of Rust's own types has their alignment, which is not
/// more than 8.
const WIDEST: &str = "[u64; 2]";

impl Over {
    /// The word in the name, the type if it is one, and what an element is in Rust.
    fn each(self) -> Vec<(Option<String>, Option<&'static Type>, String)> {
        let named = |name: &&'static str| {
            let of = TYPES.iter().find(|of| of.name == *name).expect("a type of the table");
            (Some(of.name.to_owned()), Some(of), of.rust.to_owned())
        };
        match self {
            Self::Types(names) => names.iter().map(named).collect(),
            Self::Bits(sizes) => {
                sizes.iter().map(|bits| (Some(bits.to_string()), None, element(*bits))).collect()
            }
            Self::Bytes => vec![(Some("mem".to_owned()), None, element(8))],
            Self::Once => vec![(None, None, String::new())],
        }
    }
}

fn element(bits: u32) -> String {
    if bits == 128 { WIDEST.to_owned() } else { format!("u{bits}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn functions__have_each_name_once_and_as_many_as_the_standard() {
        let all = functions();
        let names: BTreeSet<_> = all.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        let old = all.iter().filter(|function| function.standing == Standing::Deprecated).count();
        // 1,507 of 1.5 and 178 of 1.6, and AND, OR and XOR of four more types. The standard
        // counts four of `short` among its current 1,689. Of the deprecated 93 of C, six
        // that begin otherwise, four and twelve of `short`, and nine more types of eight older
        // names.
        assert_eq!((all.len() - old, old), (1507 + 178 + 12, 93 + 6 + 4 + 12 + 8 * 9));
    }

    #[test]
    fn functions__a_row_with_contexts_gives_two_for_each_type() {
        let all = functions();
        let find = |name: &str| all.iter().find(|function| function.name == name).expect(name);
        let plain = find("shmem_longlong_put");
        assert_eq!(
            plain.prototype(&plain.profiling_name()),
            "void pshmem_longlong_put(long long *dest, const long long *source, size_t nelems, int pe)"
        );
        assert!(
            plain.call.contains("(Context::DEFAULT, ") && plain.call.contains("bytes::<i64>"),
            "{}",
            plain.call
        );
        let with_context = find("shmem_ctx_longlong_put");
        assert!(with_context.prototype("f").starts_with("void f(shmem_ctx_t ctx, long long *dest"));
        assert_eq!((plain.chooser(), with_context.chooser()), (Some(0), Some(1)));
        assert_eq!(find("shmem_ctx_put128_signal").call.matches("bytes::<[u64; 2]>").count(), 1);
        assert_eq!(find("shmem_pcontrol").prototype("f"), "void f(int level, ...)");
    }
}
