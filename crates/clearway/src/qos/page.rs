//! A plan as a page for a person.

use std::fmt::Write;

use clearway_proto::base::{Bytes, Class};
use clearway_sim::spec::qos::QosPlan;

use super::level;

/// Classes that are busy together in the columns of the page.
const BUSY: [(&str, &[Class]); 3] = [
    ("all", &Class::ALL),
    ("low-latency + bulk", &[Class::LowLatency, Class::Bulk]),
    ("the low table", &[Class::BestEffort, Class::Bulk, Class::Scavenger]),
];

/// Returns the page: levels, lanes, tables, and the share of a link of each class.
pub(crate) fn page(plan: &QosPlan) -> String {
    let mut page = format!(
        "The same at adapters, switches and port 0 of switches, for packets of {}.\n\n{:<12} {:>5} {:>4}  {:<5} {:<9}",
        plan.payload, "class", "level", "lane", "table", "weights"
    );
    BUSY.iter().for_each(|(name, _)| put(&mut page, format_args!("  {name:>18}")));
    page.push('\n');
    let shares = BUSY.map(|(_, busy)| plan.shares(busy));
    for class in Class::ALL {
        let level = level(plan, class);
        let lane = plan.lane_of_level[usize::from(level)];
        let weights = |table: &[(u8, u8)]| {
            let own = table.iter().filter(|(served, _)| *served == lane);
            own.map(|(_, weight)| weight.to_string()).collect::<Vec<_>>().join("+")
        };
        let (high, low) = (weights(&plan.tables.high), weights(&plan.tables.low));
        let (table, weights) = if high.is_empty() { ("low", low) } else { ("high", high) };
        put(&mut page, format_args!("{class:<12} {level:>5} {lane:>4}  {table:<5} {weights:<9}"));
        for shares in shares {
            let share = shares[class.index()];
            put(&mut page, format_args!("  {:>16}.{} %", share / 10, share % 10));
        }
        page.push('\n');
    }
    put(
        &mut page,
        format_args!(
            "\nShares are of a link on which these classes always have full packets. The high table sends {} before one packet of the low one\n\
             (high limit {}); levels of no class are on the lane of best effort.\n",
            Bytes(u64::from(plan.tables.high_limit) * 4096),
            plan.tables.high_limit
        ),
    );
    page
}

/// Writes text; writing to a `String` cannot fail.
fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page__has_a_row_for_each_class_with_its_shares() {
        let page = page(&QosPlan::new(Bytes(4096)).expect("a payload of ports"));
        for class in Class::ALL {
            assert!(page.lines().any(|line| line.starts_with(class.name())), "{page}");
        }
        let bulk = page.lines().find(|line| line.starts_with("bulk")).expect("a row");
        assert_eq!(
            bulk.split_whitespace().collect::<Vec<_>>(),
            ["bulk", "3", "3", "low", "64+64", "5.7", "%", "20.0", "%", "28.5", "%"]
        );
        assert!(page.contains("sends 16 KiB before one packet"), "{page}");
    }
}
