//! The table of figures that were measured at two places.

use super::tables::{cell, head, number, table};
use super::{section, text};
use crate::report::model::{PlaceComparison, Report};
use crate::report::title::title_of;

/// Returns both values of each figure, their ratio, and whether it is within its limit.
pub(super) fn comparison(report: &Report) -> String {
    let Some(first) = report.place_comparisons.first() else { return String::new() };
    let places: Vec<&str> = first.values.iter().map(|(place, _)| place.as_str()).collect();
    let row = |it: &PlaceComparison| {
        let unit = if it.unit == "1" { String::new() } else { format!(" {}", text(&it.unit)) };
        let values = it
            .values
            .iter()
            .map(|(place, value)| cell(place, "n", &format!("{}{unit}", number(*value))));
        let ratio = it
            .ratio
            .map_or_else(|| "\u{2013}".to_owned(), |ratio| format!("{}\u{d7}", number(ratio)));
        format!(
            "<tr><th scope=\"row\">{}</th>{}{}{}{}</tr>\n",
            text(&it.name.replace('_', " ")),
            cell("of", "", &text(&title_of(&it.labels))),
            values.collect::<String>(),
            cell("ratio", "n", &ratio),
            cell("limit", "", &format!("{} {}\u{d7}", it.distance.word(), number(it.limit)))
        )
    };
    let body: String = report.place_comparisons.iter().map(row).collect();
    let mut columns = vec![("Figure".to_owned(), ""), ("Of".to_owned(), "")];
    columns.extend(places.iter().map(|place| (format!("On {}", text(place)), "n")));
    columns.extend([("Ratio".to_owned(), "n"), ("Limit".to_owned(), "")]);
    let columns: Vec<(&str, &str)> =
        columns.iter().map(|(name, class)| (name.as_str(), *class)).collect();
    let table = table("cards", "Figures that both places have.", &head(&columns), &body);
    let about = "The same scenario at two places, and how far its figures are apart.";
    section("side-by-side", "Side by side", about, &table)
}
