//! Names what a figure, a verdict or a chart is of: the same words on the page, in a terminal and in
//! sentences.

use super::model::{Labels, labels};

/// Returns the cell of `all` and its queue: `ping under incast, bursts 10ms/90ms, fifo`.
pub(crate) fn title_of(all: &Labels) -> String {
    let mut title = cell_title(all);
    if let Some(queue) = all.get(labels::QUEUE) {
        title.push_str(if title.is_empty() { "" } else { ", " });
        title.push_str(queue);
    }
    title
}

/// Returns victim, congestor, load and place of `all`: `ping under incast of 4 hosts at 120 %`.
/// Congestors that send all the time are named without a word for that.
pub(crate) fn cell_title(all: &Labels) -> String {
    let of = |key: &str| all.get(key).map(String::as_str);
    let mut title = match (of(labels::VICTIM), of(labels::CONGESTOR)) {
        (Some(victim), Some(labels::NOBODY)) => format!("{victim}, A = A"),
        (Some(victim), Some(congestor)) => format!("{victim} under {congestor}"),
        (one, other) => one.or(other).unwrap_or("").to_owned(),
    };
    if let Some(members) = of(labels::MEMBERS) {
        title.push_str(&format!(" of {members} hosts"));
    }
    if let Some(percent) = of(labels::INTENSITY) {
        title.push_str(&format!(" at {percent} %"));
    }
    if let Some(bursts) = of(labels::BURSTS).filter(|bursts| bursts.contains('/')) {
        title.push_str(&format!(", bursts {bursts}"));
    }
    if let Some(place) = of(labels::PLACE) {
        title.push_str(if title.is_empty() { "on " } else { " on " });
        title.push_str(place);
    }
    title
}
