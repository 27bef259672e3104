//! What a Rust source declares: functions and their length, types, modules, public items, tests.
//!
//! # Invariants
//! I1. Code under `#[cfg(test)]` is no production code: its functions have no length and its items
//!     are not public.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Span};
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, FnArg, Item, Meta, Pat, Signature, Stmt, Type, Visibility};

/// A name and the line that declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) line: usize,
}

impl Named {
    fn new(ident: &Ident) -> Self {
        Self { name: ident.to_string(), line: line(ident.span()) }
    }
}

/// A function of production code; a method's name is `Type::method`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// From `fn` to the closing brace.
    pub(super) length: usize,
    /// The body is one `match`: a table, not a sequence.
    pub(super) is_table: bool,
}

/// A `mod name;` whose text is in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileModule {
    pub(super) name: String,
    pub(super) inside: Vec<String>,
    /// The value of `#[path = "..."]`.
    pub(super) path: Option<String>,
    pub(super) line: usize,
}

/// A kind of public item, as far as the rules tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicKind {
    /// Struct, enum, trait, alias: alive too when a signature of its own file needs it.
    Type,
    /// Function, method, constant.
    Value,
}

/// Something declared `pub` without restriction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublicItem {
    pub(super) name: Named,
    pub(super) kind: PublicKind,
}

/// The declarations of one source.
#[derive(Default)]
pub(super) struct Items {
    /// Lines in front of a trailing `#[cfg(test)]` item.
    pub(super) production_lines: usize,
    pub(super) functions: Vec<Function>,
    pub(super) types: Vec<Named>,
    pub(super) modules: Vec<FileModule>,
    pub(super) public: Vec<PublicItem>,
    /// Identifiers in signatures, fields, variants and trait headers.
    pub(super) signature_words: BTreeSet<String>,
    /// Public functions with a parameter of type `bool`.
    pub(super) bool_parameters: Vec<Named>,
    pub(super) tests: Vec<Named>,
    /// The lines of functions called `of`, those of tests too.
    pub(super) of_functions: Vec<usize>,
    pub(super) forbids_unsafe: bool,
    pub(super) is_no_std: bool,
}

impl Items {
    pub(super) fn from_file(file: &syn::File, lines: usize) -> Self {
        let mut reader =
            Reader { items: Self::default(), inside: Vec::new(), owner: None, in_test: false };
        reader.items.production_lines = production_lines(file, lines);
        reader.items.forbids_unsafe =
            file.attrs.iter().any(|attr| lists(attr, "forbid", "unsafe_code"));
        reader.items.is_no_std = file.attrs.iter().any(|attr| attr.path().is_ident("no_std"));
        reader.visit_file(file);
        reader.items
    }
}

/// Walks the syntax tree and fills [`Items`].
struct Reader {
    items: Items,
    inside: Vec<String>,
    /// The type of the `impl` block, or the trait, around the current item.
    owner: Option<String>,
    in_test: bool,
}

impl Reader {
    fn declare(&mut self, ident: &Ident, vis: &Visibility, kind: PublicKind) {
        if kind == PublicKind::Type {
            self.items.types.push(Named::new(ident));
        }
        if matches!(vis, Visibility::Public(_)) && !self.in_test {
            self.items.public.push(PublicItem { name: Named::new(ident), kind });
        }
    }

    fn function(&mut self, attrs: &[Attribute], sig: &Signature, block: &Block) {
        if attrs.iter().any(|attr| attr.path().is_ident("test")) {
            self.items.tests.push(Named::new(&sig.ident));
        }
        if self.in_test {
            return;
        }
        let start = line(sig.fn_token.span);
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", sig.ident),
            None => sig.ident.to_string(),
        };
        let length = line(block.brace_token.span.close()) + 1 - start;
        self.items.functions.push(Function {
            name,
            line: start,
            length,
            is_table: is_table(block),
        });
    }

    fn public_signature(&mut self, vis: &Visibility, sig: &Signature) {
        if !matches!(vis, Visibility::Public(_)) || self.in_test {
            return;
        }
        self.collect(|words| words.visit_signature(sig));
        let bare = |input: &FnArg| match input {
            FnArg::Typed(typed) => {
                matches!((&*typed.ty, &*typed.pat), (Type::Path(ty), Pat::Ident(_)) if ty.path.is_ident("bool"))
            }
            FnArg::Receiver(_) => false,
        };
        if sig.inputs.iter().any(bare) {
            self.items.bool_parameters.push(Named::new(&sig.ident));
        }
    }

    fn collect(&mut self, read: impl FnOnce(&mut Words)) {
        let mut words = Words(BTreeSet::new());
        read(&mut words);
        self.items.signature_words.append(&mut words.0);
    }

    /// Runs `read` with test code recognised by `attrs`.
    fn scoped(&mut self, attrs: &[Attribute], read: impl FnOnce(&mut Self)) {
        let before = self.in_test;
        self.in_test |=
            attrs.iter().any(|attr| lists(attr, "cfg", "test") || attr.path().is_ident("test"));
        read(self);
        self.in_test = before;
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.scoped(&item.attrs, |reader| {
            reader.declare(&item.sig.ident, &item.vis, PublicKind::Value);
            reader.function(&item.attrs, &item.sig, &item.block);
            reader.public_signature(&item.vis, &item.sig);
            visit::visit_item_fn(reader, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.scoped(&item.attrs, |reader| {
            reader.declare(&item.sig.ident, &item.vis, PublicKind::Value);
            reader.function(&item.attrs, &item.sig, &item.block);
            reader.public_signature(&item.vis, &item.sig);
            visit::visit_impl_item_fn(reader, item);
        });
    }

    fn visit_signature(&mut self, sig: &'ast Signature) {
        if sig.ident == "of" {
            self.items.of_functions.push(line(sig.fn_token.span));
        }
        visit::visit_signature(self, sig);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.collect(|words| words.visit_signature(&item.sig));
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some((path, _)) = &item.trait_ {
            self.collect(|words| words.visit_path(path));
        }
        let outer = self.owner.replace(last_word(&item.self_ty));
        self.scoped(&item.attrs, |reader| visit::visit_item_impl(reader, item));
        self.owner = outer;
    }

    fn visit_impl_item_type(&mut self, item: &'ast syn::ImplItemType) {
        self.collect(|words| words.visit_type(&item.ty));
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.declare(&item.ident, &item.vis, PublicKind::Value);
        self.collect(|words| words.visit_type(&item.ty));
        visit::visit_impl_item_const(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.declare(&item.ident, &item.vis, PublicKind::Value);
        self.collect(|words| words.visit_type(&item.ty));
        visit::visit_item_const(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.declare(&item.ident, &item.vis, PublicKind::Type);
        self.collect(|words| words.visit_fields(&item.fields));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.declare(&item.ident, &item.vis, PublicKind::Type);
        self.collect(|words| {
            item.variants.iter().for_each(|variant| words.visit_fields(&variant.fields))
        });
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.declare(&item.ident, &item.vis, PublicKind::Type);
        self.collect(|words| words.visit_type(&item.ty));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.declare(&item.ident, &item.vis, PublicKind::Type);
        let outer = self.owner.replace(item.ident.to_string());
        self.scoped(&item.attrs, |reader| visit::visit_item_trait(reader, item));
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() {
            let path = item.attrs.iter().find_map(path_attribute);
            let Named { name, line } = Named::new(&item.ident);
            self.items.modules.push(FileModule { name, inside: self.inside.clone(), path, line });
        }
        self.inside.push(item.ident.to_string());
        self.scoped(&item.attrs, |reader| visit::visit_item_mod(reader, item));
        self.inside.pop();
    }
}

/// Collects identifiers.
struct Words(BTreeSet<String>);

impl<'ast> Visit<'ast> for Words {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.insert(ident.to_string());
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

/// True when `attr` is `name(...)` and its list contains `word`.
fn lists(attr: &Attribute, name: &str, word: &str) -> bool {
    let Meta::List(list) = &attr.meta else { return false };
    list.path.is_ident(name)
        && list.tokens.clone().into_iter().any(|token| token.to_string() == word)
}

fn path_attribute(attr: &Attribute) -> Option<String> {
    match &attr.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

fn last_word(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
        }
        Type::Reference(reference) => last_word(&reference.elem),
        _ => String::from("impl"),
    }
}

fn is_table(block: &Block) -> bool {
    matches!(block.stmts.as_slice(), [Stmt::Expr(Expr::Match(_), _)])
}

/// The lines in front of a trailing `#[cfg(test)]` item, or all of them.
fn production_lines(file: &syn::File, lines: usize) -> usize {
    let Some(Item::Mod(last)) = file.items.last() else { return lines };
    match last.attrs.iter().find(|attr| lists(attr, "cfg", "test")) {
        Some(attr) if last.content.is_some() => line(attr.pound_token.spans[0]) - 1,
        _ => lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Items {
        Items::from_file(&syn::parse_file(text).unwrap(), text.lines().count())
    }

    #[test]
    fn production_lines__stop_at_the_trailing_tests() {
        assert_eq!(items("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n").production_lines, 2);
        assert_eq!(items("#[cfg(test)]\nmod tests {\n}\nfn a() {}\n").production_lines, 4);
    }

    #[test]
    fn functions__carry_owner_length_and_shape() {
        let found = items(
            "impl<T> A<T> {\n fn b() {\n  match 1 {\n   _ => {}\n  }\n }\n}\n#[cfg(test)] mod t { fn c() {} }",
        );
        let table = Function { name: "A::b".to_owned(), line: 2, length: 5, is_table: true };
        assert_eq!(found.functions, [table]);
    }

    #[test]
    fn public__leaves_out_tests_and_restricted_items() {
        let found = items(
            "pub struct A; pub(crate) struct B; impl A { pub fn c() {} } #[cfg(test)] mod t { pub fn d() {} }",
        );
        let names: Vec<_> = found.public.iter().map(|item| item.name.name.as_str()).collect();
        assert_eq!(names, ["A", "c"]);
    }

    #[test]
    fn bool_parameters__only_bare_ones_of_public_functions() {
        let found =
            items("pub fn a(on: bool) {} fn b(on: bool) {} pub fn c(f: fn(bool) -> bool) {}");
        assert_eq!(found.bool_parameters.len(), 1);
    }

    #[test]
    fn modules__know_their_path_attribute_and_place() {
        let found = items("mod a { #[path = \"x.rs\"] mod b; } mod c {}");
        let b = FileModule {
            name: "b".into(),
            inside: vec!["a".into()],
            path: Some("x.rs".into()),
            line: 1,
        };
        assert_eq!(found.modules, [b]);
    }
}
