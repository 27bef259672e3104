//! The validation ladder: the simulated fabric against formulas, published machines and itself.
//! `docs/validation.md` tells it.
//!
//! # Model
//! Each rung is a module. It measures figures, lays each next to what it must be, and refuses those
//! that miss their tolerance. The figures themselves are golden text in `tests/golden`, compared
//! exactly.
#![forbid(unsafe_code)]
#![allow(non_snake_case)]

mod ladder;

use std::path::Path;

/// Compares the golden text `file` with what `text` makes now.
fn unchanged(file: &str) {
    let golden =
        ladder::GOLDEN.into_iter().find(|golden| golden.file == file).expect("a golden text");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let now = (golden.text)();
    let endless = std::iter::repeat("");
    let differing: Vec<String> = before
        .lines()
        .chain(endless.clone())
        .zip(now.lines().chain(endless))
        .take(before.lines().count().max(now.lines().count()))
        .filter(|(before, after)| before != after)
        .map(|(before, after)| format!("- {before}\n+ {after}"))
        .collect();
    assert!(
        before == now,
        "{file} is not what the fabric does now; if that is meant, \
         `cargo run -p clearway-sim --example golden -- --update` writes it\n{}",
        differing.join("\n")
    );
}

#[test]
fn golden__closed_forms() {
    unchanged("closed-forms.txt");
}

#[test]
fn golden__elan3_broadcast() {
    unchanged("elan3-broadcast.txt");
}

#[test]
fn golden__machines() {
    unchanged("machines.txt");
}

#[test]
fn golden__qos_hdr100() {
    unchanged("qos-hdr100.txt");
}

#[test]
fn golden__staging_qdr() {
    unchanged("staging-qdr.txt");
}

#[test]
fn golden__tree_saturation() {
    unchanged("tree-saturation.txt");
}

#[test]
fn golden__uniform_load() {
    unchanged("uniform-load.txt");
}
