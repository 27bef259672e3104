//! Clearway.

#![forbid(unsafe_code)]

mod report;

fn main() {}
