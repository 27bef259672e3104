//! Records that come and go, named by small numbers.
//!
//! # Invariants
//! I1. The same sequence of calls gives the same numbers.

use std::ops::{Index, IndexMut};

/// No record.
pub(super) const NONE: u32 = u32::MAX;

/// A growing array whose freed places are used again, the last freed first: it is still in the
/// cache.
#[derive(Debug)]
pub(super) struct Arena<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = value;
                place
            }
            None => {
                self.places.push(value);
                self.places.len() as u32 - 1
            }
        }
    }

    /// Returns the places in use, in order. O(places).
    pub(super) fn alive(&self) -> Vec<u32> {
        let mut free = vec![false; self.places.len()];
        self.free.iter().for_each(|place| free[*place as usize] = true);
        (0..self.places.len() as u32).filter(|place| !free[*place as usize]).collect()
    }

    /// Gives the place back; its contents stay until they are overwritten.
    pub(super) fn free(&mut self, place: u32) {
        self.free.push(place);
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;
    fn index(&self, place: u32) -> &T {
        &self.places[place as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.places[place as usize]
    }
}
