//! Turns the description of a network's shape into a graph, and remembers what routing needs to know about it.
