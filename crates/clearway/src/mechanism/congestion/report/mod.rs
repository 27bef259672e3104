//! What the congestion test shows of its figures: on a terminal and as sections of the page.

pub(crate) mod charts;
pub(crate) mod heat;
pub(crate) mod impact;
pub(crate) mod programs;
pub(crate) mod slow;
