//! A function of the table as C writes it, and what its parameters say about how it is chosen.

use crate::table::Function;

impl Function {
    /// The prototype in C, under `name`.
    pub fn prototype(&self, name: &str) -> String {
        let mut list: Vec<String> = self.parameters.iter().map(ToString::to_string).collect();
        if self.is_variadic {
            list.push("...".to_owned());
        }
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        let gap = if self.returns.ends_with('*') { "" } else { " " };
        format!("{}{gap}{name}({list})", self.returns)
    }

    /// The place of the first parameter whose type is made of the function's own.
    pub fn chooser(&self) -> Option<usize> {
        self.parameters
            .iter()
            .position(|parameter| parameter.is_of_type && parameter.c.ends_with('*'))
    }

    /// Whether the first parameter is a context.
    pub fn takes_context(&self) -> bool {
        self.parameters.first().is_some_and(|first| first.c == "shmem_ctx_t")
    }
}
