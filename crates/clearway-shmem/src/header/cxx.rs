//! Writes overloads for C++: the names that C11 chooses by type, and complex numbers of C++.

use super::generic::groups;
use crate::table::Function;

/// What stands in front of overloads, and behind them.
pub(super) const BEGIN: &str = "#ifdef __cplusplus\n\n#include <complex>\n\nextern \"C++\" {\n\n";
pub(super) const END: &str = "\n} /* extern \"C++\" */\n\n#endif /* __cplusplus */\n";

/// The part of the header.
pub(super) fn text(all: &[Function]) -> String {
    let mut text = format!("{BEGIN}{}", overloads(all));
    text.push_str(
        "static inline void shmem_signal_add(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe) \
         { shmem_ctx_signal_add(ctx, sig_addr, signal, pe); }\n\
         static inline void shmem_signal_set(shmem_ctx_t ctx, uint64_t *sig_addr, uint64_t signal, int pe) \
         { shmem_ctx_signal_set(ctx, sig_addr, signal, pe); }\n\
         static inline int shmem_sync(shmem_team_t team) { return shmem_team_sync(team); }\n",
    );
    text.push_str(END);
    text
}

/// The overloads of the names that C11 chooses by type, and of functions for complex numbers.
pub(super) fn overloads(all: &[Function]) -> String {
    let mut text = String::new();
    for function in all.iter().filter(|function| is_complex(function)) {
        text.push_str(&overload(function, &function.name, in_cxx));
    }
    for group in groups(all) {
        // Of a name that is a function of C as well one overload is there already.
        let taken = all.iter().find(|function| function.name == group.name);
        let is_taken =
            |function: &&&Function| taken.is_some_and(|taken| has_same_parameters(taken, function));
        for function in
            group.plain.iter().chain(&group.with_context).filter(|function| !is_taken(function))
        {
            text.push_str(&overload(function, group.name, str::to_owned));
            if is_complex(function) {
                text.push_str(&overload(function, group.name, in_cxx));
            }
        }
    }
    text
}

fn is_complex(function: &Function) -> bool {
    function.of.is_some_and(|of| of.name.starts_with("complex"))
}

fn has_same_parameters(a: &Function, b: &Function) -> bool {
    a.parameters
        .iter()
        .map(|parameter| &parameter.c)
        .eq(b.parameters.iter().map(|parameter| &parameter.c))
}

/// The type of C++ for a type of C.
fn in_cxx(c: &str) -> String {
    c.replace("clearway_complexd", "std::complex<double>")
        .replace("clearway_complexf", "std::complex<float>")
}

/// A function `name` that calls `function`, with its types as `typed` has them.
fn overload(function: &Function, name: &str, typed: impl Fn(&str) -> String) -> String {
    let mut same = function.clone();
    let mut arguments = Vec::new();
    for parameter in &mut same.parameters {
        let c = typed(&parameter.c);
        let needs_cast = c != parameter.c;
        let argument = &parameter.name;
        arguments.push(if needs_cast {
            format!("reinterpret_cast<{}>({argument})", parameter.c)
        } else {
            argument.clone()
        });
        parameter.c = c;
    }
    let answer = if same.returns == "void" { "" } else { "return " };
    format!(
        "static inline {} {{ {answer}{}({}); }}\n",
        same.prototype(name),
        function.name,
        arguments.join(", ")
    )
}
