//! Runs one engine in two places: on a simulated fabric in virtual time, and over UDP sockets in
//! real time.
//!
//! `cargo run --example own_engine`
#![cfg_attr(test, allow(non_snake_case))]

mod engine;
mod real;
mod simulated;

fn main() {
    for (place, names) in [("simulated", simulated::run(4)), ("UDP", real::run(4))] {
        println!("{place}: {}", String::from_utf8_lossy(&names));
    }
}

#[cfg(test)]
#[test]
fn main__both_places_give_the_same_names() {
    assert_eq!((simulated::run(4), real::run(4)), (b"abcd".to_vec(), b"abcd".to_vec()));
}
