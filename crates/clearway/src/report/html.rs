//! Renders the page of a report (not written yet).
use super::model::Report;
pub(crate) fn render(_report: &Report) -> String {
    String::new()
}
