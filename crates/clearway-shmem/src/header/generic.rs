//! Writes the names of C11 that choose a function by the type of an argument.
//!
//! # Model
//! A selection may name a type once only, and several of the standard's names mean one type
//! (`long`, `int64_t` and `ptrdiff_t`), so of each fundamental type the first function of the table
//! is taken. A pointer to what is promised not to change, or may change at any time, is another
//! type than the plain one, and both are named where the function takes both.

use crate::table::{Function, Parameter};

/// Functions that C11 chooses among, under their common name.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    /// One for each fundamental type.
    pub(super) plain: Vec<&'a Function>,
    /// The same with a context.
    pub(super) with_context: Vec<&'a Function>,
}

/// All groups in the order of the table.
pub(super) fn groups(all: &[Function]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for function in all {
        let Some(name) = function.generic.as_deref() else { continue };
        let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            groups.push(Group { name, plain: Vec::new(), with_context: Vec::new() });
            groups.len() - 1
        });
        let group = &mut groups[at];
        let list =
            if function.takes_context() { &mut group.with_context } else { &mut group.plain };
        if !list.iter().any(|other| fundamental(other) == fundamental(function)) {
            list.push(function);
        }
    }
    groups
}

fn fundamental(function: &Function) -> &'static str {
    function.of.map_or("", |of| of.is)
}

/// What stands in front of macros, and behind them.
pub(super) const BEGIN: &str =
    "#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L\n\n";
pub(super) const END: &str = "#endif /* C11 */\n\n";

/// The macros of the groups among `all`.
pub(super) fn macros(all: &[Function]) -> String {
    groups(all).iter().map(macro_of).collect()
}

/// The part of the header.
pub(super) fn text(all: &[Function]) -> String {
    let mut text = String::from(BEGIN);
    text.push_str(
        "/* The first and the second argument, for _Generic, which does not evaluate them. */\n\
         #define CLEARWAY_FIRST(...) CLEARWAY_FIRST_OF(__VA_ARGS__, 0)\n\
         #define CLEARWAY_FIRST_OF(first, ...) first\n\
         #define CLEARWAY_SECOND(...) CLEARWAY_SECOND_OF(__VA_ARGS__, 0, 0)\n\
         #define CLEARWAY_SECOND_OF(first, second, ...) second\n\n",
    );
    text.push_str(&macros(all));
    text.push_str(
        "/* With or without a context; the other arguments have a single type. */\n\
         #define shmem_signal_add(...) \\\n    \
         _Generic((CLEARWAY_FIRST(__VA_ARGS__)), shmem_ctx_t: shmem_ctx_signal_add, default: shmem_signal_add)(__VA_ARGS__)\n\
         #define shmem_signal_set(...) \\\n    \
         _Generic((CLEARWAY_FIRST(__VA_ARGS__)), shmem_ctx_t: shmem_ctx_signal_set, default: shmem_signal_set)(__VA_ARGS__)\n\n\
         /* With a team, or with an active set (deprecated). */\n\
         #define shmem_sync(...) \\\n    \
         _Generic((CLEARWAY_FIRST(__VA_ARGS__)), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)\n\n",
    );
    text.push_str(END);
    text
}

fn macro_of(group: &Group<'_>) -> String {
    let chosen_by =
        |place: Option<usize>| if place == Some(0) { "CLEARWAY_FIRST" } else { "CLEARWAY_SECOND" };
    let mut arms = Vec::new();
    if let Some(first) = group.with_context.first() {
        let by = chosen_by(first.chooser());
        let mut inner: Vec<String> =
            group.with_context.iter().flat_map(|function| associations(function)).collect();
        inner.push("default: clearway_no_function_takes_this_type".to_owned());
        arms.push(format!(
            "shmem_ctx_t: _Generic(({by}(__VA_ARGS__)), \\\n            {})",
            inner.join(", \\\n            ")
        ));
    }
    arms.extend(group.plain.iter().flat_map(|function| associations(function)));
    let by = chosen_by(group.plain.first().and_then(|function| function.chooser()));
    format!(
        "#define {}(...) \\\n    _Generic(({by}(__VA_ARGS__)), \\\n        {})(__VA_ARGS__)\n\n",
        group.name,
        arms.join(", \\\n        ")
    )
}

/// The types that choose `function`.
fn associations(function: &Function) -> Vec<String> {
    let place = function.chooser().expect("a function of a group has a pointer to its type");
    let Parameter { c, .. } = &function.parameters[place];
    let plain = c.replace("const ", "").replace("volatile ", "");
    let mut types = vec![plain.clone()];
    if *c != plain {
        types.push(c.clone());
    }
    types.into_iter().map(|c| format!("{c}: {}", function.name)).collect()
}
