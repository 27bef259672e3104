//! Counts of each shape against closed formulas, and what is refused.
