//! Clearway.
fn main() {}
