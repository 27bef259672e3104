//! The dependency rule: a crate imports what its row allows, from lower floors; a room of proto or
//! of the binary likewise.
//!
//! # Source
//! `ARCHITECTURE.md`, the tables of crates and rooms and the picture of floors.
//!
//! # Not here
//! Reading the tables: [`super::house`]. Where `unsafe` may stand: [`super::unsafety`].

use std::collections::BTreeSet;

use super::Finding;
use super::house::{self, CrateRow, House};
use super::tokens::UsedPath;
use super::tree::{Package, Purpose, RustFile, Tree};

/// The library that has rooms.
const PROTO: &str = "clearway-proto";
/// Where the sources of the binary are.
const BINARY: &str = "crates/clearway/src/";
/// The room of the binary whose folders are rooms of their own.
const MECHANISMS: &str = "mechanism";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    if tree.packages.is_empty() {
        return Vec::new();
    }
    let house = match House::read(tree) {
        Ok(house) => house,
        Err(missing) => return missing,
    };
    let mut found = Vec::new();
    check_rows(tree, &house, &mut found);
    for package in &tree.packages {
        if let Some(row) = house.row(&package.name) {
            check_manifest(tree, &house, package, row, &mut found);
        }
    }
    for file in &tree.rust {
        check_crates_named(tree, &house, file, &mut found);
        check_rooms_named(&house, file, &mut found);
        check_binary_rooms_named(&house, file, &mut found);
    }
    found
}

/// A crate without a row, a row without a crate; the same for floors and rooms.
fn check_rows(tree: &Tree, house: &House, found: &mut Vec<Finding>) {
    let names: BTreeSet<&str> = tree.packages.iter().map(|package| package.name.as_str()).collect();
    for name in &names {
        if house.row(name).is_none() {
            found.push(Finding::new(
                house::PATH,
                1,
                format!("the crate `{name}` has no row in the table of crates; add one"),
            ));
        }
        if !house.floors.contains_key(*name) {
            found.push(Finding::new(
                house::PATH,
                1,
                format!("the crate `{name}` stands on no floor of the picture; add it"),
            ));
        }
    }
    for row in house.crates.iter().filter(|row| !names.contains(row.name.as_str())) {
        found.push(Finding::new(
            house::PATH,
            row.line,
            format!("there is no crate `{}`; remove its row", row.name),
        ));
    }
    for name in house.floors.keys().filter(|name| !names.contains(name.as_str())) {
        found.push(Finding::new(
            house::PATH,
            1,
            format!("the picture shows `{name}`, which is no crate; remove it"),
        ));
    }
    let rooms: BTreeSet<&str> = tree.rust.iter().filter_map(room_of).collect();
    for room in rooms.iter().filter(|room| house.room(room).is_none()) {
        found.push(Finding::new(
            house::PATH,
            1,
            format!("the room `{room}` of {PROTO} has no row in the table of rooms; add one"),
        ));
    }
    for row in house.rooms.iter().filter(|row| !rooms.contains(row.name.as_str())) {
        found.push(Finding::new(
            house::PATH,
            row.line,
            format!("{PROTO} has no room `{}`; remove its row", row.name),
        ));
    }
    let modules: Vec<Vec<String>> = tree.rust.iter().filter_map(binary_module).collect();
    let rooms: BTreeSet<&str> =
        modules.iter().filter_map(|module| Some(module.first()?.as_str())).collect();
    for room in rooms.iter().filter(|room| house.binary_room(room).is_none()) {
        found.push(Finding::new(
            house::PATH,
            1,
            format!(
                "the room `{room}` of the binary has no row in the table of its rooms; add one"
            ),
        ));
    }
    for row in house.binary.iter().filter(|row| !rooms.contains(row.name.as_str())) {
        found.push(Finding::new(
            house::PATH,
            row.line,
            format!("the binary has no room `{}`; remove its row", row.name),
        ));
    }
}

/// The dependencies in `Cargo.toml` against the row, in both directions.
fn check_manifest(
    tree: &Tree,
    house: &House,
    package: &Package,
    row: &CrateRow,
    found: &mut Vec<Finding>,
) {
    let manifest = format!("{}/Cargo.toml", package.dir);
    let is_member = |name: &str| tree.packages.iter().any(|member| member.name == name);
    for (name, purpose) in &package.dependencies {
        if is_member(name) {
            if !row.imports.iter().any(|import| import.name == *name) {
                let sentence = format!(
                    "{} may not import {name}; {} says what it may import",
                    package.name,
                    house::PATH
                );
                found.push(Finding::new(&manifest, 1, sentence));
            }
            if house.floors.get(name) >= house.floors.get(&package.name) {
                let sentence = format!(
                    "{name} does not stand on a lower floor than {}; turn the arrow round",
                    package.name
                );
                found.push(Finding::new(&manifest, 1, sentence));
            }
        } else if *purpose == Purpose::Product && !row.libraries.contains(name) {
            let sentence = format!(
                "the library `{name}` is not in the row of {}; do without it or add it",
                package.name
            );
            found.push(Finding::new(&manifest, 1, sentence));
        }
    }
    let unused =
        |name: &str| !package.dependencies.iter().any(|(dependency, _)| dependency == name);
    let listed = row.imports.iter().map(|import| &import.name).chain(&row.libraries);
    for name in listed.filter(|name| unused(name)) {
        let sentence =
            format!("{} does not depend on `{name}`; remove it from the row", package.name);
        found.push(Finding::new(house::PATH, row.line, sentence));
    }
}

/// Paths that begin with another crate of the workspace.
fn check_crates_named(tree: &Tree, house: &House, file: &RustFile, found: &mut Vec<Finding>) {
    let Some(package) = tree.package_of(&file.path) else { return };
    let Some(row) = house.row(&package.name) else { return };
    for path in &file.tokens.paths {
        let name = path.segments[0].replace('_', "-");
        if name == package.name
            || !tree.packages.iter().any(|member| member.name == name)
            || shadowed(file, path)
        {
            continue;
        }
        let allowed = match row.imports.iter().find(|import| import.name == name) {
            None => false,
            Some(import) => {
                import.rooms.as_ref().is_none_or(|rooms| rooms.contains(&path.segments[1]))
            }
        };
        if !allowed {
            let shown = path.segments[..2].join("::");
            let sentence = format!(
                "{} may not name `{shown}`; {} says what it may import",
                package.name,
                house::PATH
            );
            found.push(Finding::new(&file.path, path.line, sentence));
        }
    }
}

/// True when the first word of `path` is a module of this very file and no crate.
fn shadowed(file: &RustFile, path: &UsedPath) -> bool {
    file.items.modules.iter().any(|module| module.name == path.segments[0])
}

/// Paths from one room of proto into another.
fn check_rooms_named(house: &House, file: &RustFile, found: &mut Vec<Finding>) {
    let Some(own) = room_of(file) else { return };
    let Some(row) = house.room(own) else { return };
    for path in &file.tokens.paths {
        let Some(room) = resolve(&module_of(&file.path), path).into_iter().flatten().next() else {
            continue;
        };
        if room == own || row.imports.contains(&room) {
            continue;
        }
        let sentence = match house.room(&room) {
            Some(_) => format!(
                "the room `{own}` may not name `{room}`; {} says what it may import",
                house::PATH
            ),
            None => format!("`crate::{room}` is no room; name the room that `{room}` lives in"),
        };
        found.push(Finding::new(&file.path, path.line, sentence));
    }
}

/// Paths from one room of the binary into another. Each folder of [`MECHANISMS`] is a room of its
/// own.
fn check_binary_rooms_named(house: &House, file: &RustFile, found: &mut Vec<Finding>) {
    let Some(module) = binary_module(file) else { return };
    let Some(row) = module.first().and_then(|own| house.binary_room(own)) else { return };
    for path in &file.tokens.paths {
        let Some(to) = resolve(&module, path) else { continue };
        let Some(room) = to.first().filter(|room| house.binary_room(room).is_some()) else {
            continue;
        };
        let is_own = row.name == *room
            && (room != MECHANISMS || module.get(1) == to.get(1) || module.len() == 1);
        if is_own || row.imports.contains(room) {
            continue;
        }
        let (own, to) = (module.join("::"), to.join("::"));
        let sentence =
            format!("`{own}` may not name `{to}`; {} says what its room may import", house::PATH);
        found.push(Finding::new(&file.path, path.line, sentence));
    }
}

/// The module path of `file` where it is a source of the binary and not its root.
fn binary_module(file: &RustFile) -> Option<Vec<String>> {
    file.path
        .strip_prefix(BINARY)
        .filter(|inside| *inside != "main.rs")
        .map(|_| module_of(&file.path))
}

/// The room of proto that `file` belongs to.
fn room_of(file: &RustFile) -> Option<&str> {
    let inside = file.path.strip_prefix("crates/clearway-proto/src/")?;
    let first = inside.split('/').next()?;
    match first.strip_suffix(".rs").unwrap_or(first) {
        "lib" => None,
        room => Some(room),
    }
}

/// The module path of a source: `a/src/b/c.rs` and `a/src/b/c/mod.rs` are `[b, c]`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    inside.split('/').filter(|part| *part != "lib").map(str::to_owned).collect()
}

/// What `path` leads to below the crate root, when it starts at `crate` or `super`.
fn resolve(module: &[String], path: &UsedPath) -> Option<Vec<String>> {
    if path.segments[0] == "crate" {
        return Some(path.segments[1..].to_vec());
    }
    let ups = path.segments.iter().take_while(|segment| *segment == "super").count();
    let mut place: Vec<&String> = module.iter().chain(&path.inside).collect();
    if ups == 0 || ups > place.len() {
        return None;
    }
    place.truncate(place.len() - ups);
    Some(place.into_iter().chain(&path.segments[ups..]).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUSE: &str = "\
| crate | may import | libraries |\n|---|---|---|\n| clearway-proto | nothing | libm |\n\
| clearway-lab | proto::{base} | nix |\n\n| room | may import |\n|---|---|\n\
| base | nothing |\n| wire | base |\n| congestion | base, wire |\n| timeslice | base, wire |\n\n\
| room of the binary | may import |\n|---|---|\n| report | nothing |\n| run | report |\n\
| mechanism | run, report |\n\n\
floor 0  clearway-proto\nfloor 1  clearway-lab\n";

    /// A house that keeps every rule, with some texts replaced or added.
    fn check_with(changes: &[(&str, &str)], packages: Vec<Package>) -> Vec<String> {
        let mut texts = vec![
            (house::PATH, HOUSE),
            ("crates/clearway-proto/src/lib.rs", "pub mod base;"),
            ("crates/clearway-proto/src/base.rs", ""),
            ("crates/clearway-proto/src/wire/mod.rs", "use crate::base::Nanos;"),
            ("crates/clearway-proto/src/congestion/mod.rs", "use super::wire::Wire;"),
            ("crates/clearway-proto/src/timeslice/mod.rs", "use crate::wire::{self, Wire};"),
            ("crates/clearway-lab/src/lib.rs", "use clearway_proto::base::Class;"),
            (
                "crates/clearway/src/main.rs",
                "mod report; fn main() { crate::mechanism::cast::run() }",
            ),
            ("crates/clearway/src/report/mod.rs", ""),
            ("crates/clearway/src/run/mod.rs", "use crate::report::Report;"),
            ("crates/clearway/src/mechanism/mod.rs", "pub mod cast; pub mod msa;"),
            (
                "crates/clearway/src/mechanism/cast/mod.rs",
                "use super::cast::plan; use crate::run::Order;",
            ),
        ];
        texts.retain(|(path, _)| !changes.iter().any(|(changed, _)| changed == path));
        texts.extend_from_slice(changes);
        check(&Tree::with_packages(&texts, packages)).iter().map(ToString::to_string).collect()
    }

    fn packages() -> Vec<Package> {
        vec![
            Package::library("clearway-proto", &["libm"]),
            Package::library("clearway-lab", &["clearway-proto", "nix"]),
        ]
    }

    #[test]
    fn check__a_house_in_order_has_no_findings() {
        assert_eq!(check_with(&[], packages()), Vec::<String>::new());
    }

    #[test]
    fn check__a_forbidden_room_of_another_crate_is_refused() {
        let found = check_with(
            &[("crates/clearway-lab/src/lib.rs", "\nfn f() { clearway_proto::congestion::run() }")],
            packages(),
        );
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/clearway-lab/src/lib.rs:2: clearway-lab may not name"),
            "{found:?}"
        );
    }

    #[test]
    fn check__a_glob_of_a_restricted_crate_is_refused() {
        let found =
            check_with(&[("crates/clearway-lab/src/lib.rs", "use clearway_proto::*;")], packages());
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn check__inside_proto_the_wire_cannot_name_an_engine() {
        for text in [
            "use crate::congestion::Plan;",
            "use crate::{base, congestion};",
            "use super::congestion::Plan;",
            "mod t { use super::super::congestion::Plan; }",
        ] {
            let found = check_with(&[("crates/clearway-proto/src/wire/mod.rs", text)], packages());
            assert_eq!(found.len(), 1, "{text}: {found:?}");
        }
        let own = "mod t { use super::super::wire::X; use super::y::Z; }";
        assert!(
            check_with(&[("crates/clearway-proto/src/wire/mod.rs", own)], packages()).is_empty()
        );
    }

    #[test]
    fn check__engines_never_import_engines() {
        let changed =
            [("crates/clearway-proto/src/congestion/a.rs", "use super::super::timeslice::Plan;")];
        assert_eq!(check_with(&changed, packages()).len(), 1);
    }

    #[test]
    fn check__inside_the_binary_nothing_names_a_room_above_or_a_sibling_mechanism() {
        for (file, text) in [
            ("report/mod.rs", "use crate::run::Order;"),
            ("run/mod.rs", "pub(crate) use crate::mechanism::cast::Plan;"),
            ("run/mod.rs", "fn f() { crate::mechanism::cast::plan() }"),
            ("run/venue.rs", "use super::super::mechanism::cast::Plan;"),
            ("mechanism/cast/mod.rs", "use crate::mechanism::msa::Survey;"),
            ("mechanism/cast/mod.rs", "use super::msa::Survey;"),
            ("mechanism/cast/plan.rs", "mod tests { use super::super::super::msa::Survey; }"),
        ] {
            let file = format!("crates/clearway/src/{file}");
            let found = check_with(&[(&file, text)], packages());
            assert_eq!(found.len(), 1, "{file}: {text}: {found:?}");
        }
        let own = [(
            "crates/clearway/src/mechanism/cast/plan.rs",
            "use super::seat::Seat; use crate::mechanism::cast::X;",
        )];
        assert!(check_with(&own, packages()).is_empty());
    }

    #[test]
    fn check__an_unlisted_library_or_crate_is_refused_and_so_is_a_stale_row() {
        let mut surplus = packages();
        surplus[0].dependencies.push(("rand".to_owned(), Purpose::Product));
        assert_eq!(check_with(&[], surplus).len(), 1);
        let mut absent = packages();
        absent[1].dependencies.retain(|(name, _)| name != "nix");
        assert_eq!(check_with(&[], absent).len(), 1);
        let mut upwards = packages();
        upwards[0].dependencies.push(("clearway-lab".to_owned(), Purpose::Product));
        assert_eq!(check_with(&[], upwards).len(), 2);
    }

    #[test]
    fn check__crates_rooms_rows_and_floors_match_one_to_one() {
        let mut surplus = packages();
        surplus.push(Package::library("clearway-new", &[]));
        assert_eq!(check_with(&[], surplus).len(), 2);
        assert_eq!(check_with(&[], packages()[..1].iter().map(copy).collect()).len(), 2);
        let new_room = [("crates/clearway-proto/src/flow.rs", "")];
        assert_eq!(check_with(&new_room, packages()).len(), 1);
    }

    fn copy(package: &Package) -> Package {
        Package::library(&package.name, &["libm"])
    }
}
