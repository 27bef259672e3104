//! A plan as a page for a person.

use std::fmt::Write;

use clearway_proto::base::{Bytes, Class};
use clearway_runtime::launch::escaped;
use clearway_sim::spec::qos::{PortAddress, PresentTables, QosPlan};

use super::level;
use super::simulation::{MeetingPoint, simulated};
use super::verify::AnswerSource;

/// Classes that are busy together in the columns of the page.
const BUSY: [([&str; 2], &[Class]); 3] = [
    (["", "all"], &Class::ALL),
    (["low-latency", "+ bulk"], &[Class::LowLatency, Class::Bulk]),
    (["the low", "table"], &[Class::BestEffort, Class::Bulk, Class::Scavenger]),
];
/// Columns of a share, and of two.
const SHARE: usize = 11;
const SHARES: usize = 15;

/// Shares of all classes in a column.
type SharesOfColumn = [u64; Class::ALL.len()];

/// Returns the page: levels, lanes, tables, and the share of a link of each class, by the formula and
/// in a short simulation; then the same of `present` tables, if there are any.
pub(crate) fn page(plan: &QosPlan, present: Option<&PresentTables>) -> String {
    let mut page = format!(
        "The same at adapters, switches and port 0 of switches, for packets of {}.\n\n",
        plan.payload
    );
    let first =
        format!("{:<12} {:>5} {:>4}  {:<5} {:<9}", "class", "level", "lane", "table", "weights");
    heads(&mut page, &first, SHARE);
    let shares = BUSY.map(|(_, busy)| plan.shares(busy));
    for class in Class::ALL {
        let (level, lane) = (level(plan, class), plan.lane(class));
        let weights = |table: &[(u8, u8)]| {
            let own = table.iter().filter(|(served, _)| *served == lane);
            own.map(|(_, weight)| weight.to_string()).collect::<Vec<_>>().join("+")
        };
        let (high, low) = (weights(&plan.tables.high), weights(&plan.tables.low));
        let (table, weights) = if high.is_empty() { ("low", low) } else { ("high", high) };
        put(&mut page, format_args!("{class:<12} {level:>5} {lane:>4}  {table:<5} {weights:<9}"));
        shares.iter().for_each(|shares| {
            put(&mut page, format_args!("  {:>1$} %", tenths(shares[class.index()]), SHARE - 2));
        });
        page.push('\n');
    }
    put(
        &mut page,
        format_args!(
            "\nShares are of a link on which these classes always have full packets. The high\n\
             table sends {} before one packet of the low one (high limit {}); levels of\n\
             no class are on the lane of best effort.\n",
            Bytes(u64::from(plan.tables.high_limit) * 4096),
            plan.tables.high_limit
        ),
    );
    let run = |place| BUSY.map(|(_, busy)| simulated(plan, busy, place));
    page.push_str("\nIn a short simulation, at an adapter / at a switch:\n");
    pairs(&mut page, run(MeetingPoint::Adapter), run(MeetingPoint::Switch));
    if let Some(PresentTables { adapters, switches }) = present {
        page.push_str("\nWith the present tables, at adapters / at switches:\n");
        pairs(
            &mut page,
            BUSY.map(|(_, busy)| adapters.shares(busy)),
            BUSY.map(|(_, busy)| switches.shares(busy)),
        );
    }
    page
}

/// Writes the heads of columns of this width behind `first`, in two lines.
fn heads(page: &mut String, first: &str, width: usize) {
    for line in [0, 1] {
        let length = first.chars().count();
        let first = if line == 0 { " ".repeat(length) } else { first.to_owned() };
        let names = BUSY.map(|(names, _)| format!("  {:>width$}", names[line]));
        put(page, format_args!("{}\n", (first + &names.concat()).trim_end()));
    }
}

/// Returns a share as percent.
fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 10, thousandths % 10)
}

/// Writes a row for each class with its shares in two places.
fn pairs(page: &mut String, one: [SharesOfColumn; 3], other: [SharesOfColumn; 3]) {
    let first = 80 - BUSY.len() * (SHARES + 2);
    heads(page, &" ".repeat(first), SHARES);
    for class in Class::ALL {
        put(page, format_args!("{class:<first$}"));
        for (one, other) in one.iter().zip(&other) {
            let [one, other] = [one, other].map(|shares| tenths(shares[class.index()]));
            put(page, format_args!("  {:>1$} %", format!("{one} / {other}"), SHARES - 2));
        }
        page.push('\n');
    }
}

/// Returns the tables that each device gets, and which of its ports cannot have the plan's: port 0
/// that is no enhanced one, and ports with fewer lanes, as far as `answers` say how many there are.
///
/// # Errors
/// A recorded answer that cannot be read.
pub(crate) fn devices(
    plan: &QosPlan,
    ports: &[PortAddress],
    answers: Option<&AnswerSource>,
) -> anyhow::Result<String> {
    let is_device = |port: &&PortAddress| port.is_switch;
    let adapters = ports.iter().filter(|port| !port.is_switch).count();
    let mut page = format!("\nqos_ca_ lines set {adapters} ports of adapters.\n");
    let mut lids: Vec<u16> = ports.iter().filter(is_device).map(|port| port.lid).collect();
    lids.dedup();
    for lid in lids {
        let own: Vec<&PortAddress> =
            ports.iter().filter(|port| port.is_switch && port.lid == lid).collect();
        let cabled = own.iter().filter(|port| port.number > 0).count();
        let zero = if own.iter().any(|port| port.number == 0) {
            "qos_sw0_ lines set the levels of its port 0"
        } else {
            "its port 0 is a base one, which has no tables"
        };
        let name = own.first().map_or("", |port| port.device.as_str());
        put(
            &mut page,
            format_args!(
                "switch {} lid {lid}: qos_swe_ lines set {cabled} ports; {zero}.\n",
                escaped(name)
            ),
        );
    }
    let Some(answers) = answers else {
        page.push_str(
            "How many lanes ports have is not in this file: `clearway qos verify` asks them.\n",
        );
        return Ok(page);
    };
    for port in ports.iter().filter(|port| port.number > 0) {
        if let Some(sentence) = answers.few_lanes(plan, port)? {
            put(&mut page, format_args!("{}: {sentence}.\n", port.name()));
        }
    }
    Ok(page)
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
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let page = page(&plan, None);
        for class in Class::ALL {
            let rows = page.lines().filter(|line| line.starts_with(class.name())).count();
            assert_eq!(rows, 2, "{page}");
        }
        let bulk = page.lines().find(|line| line.starts_with("bulk")).expect("a row");
        assert_eq!(
            bulk.split_whitespace().collect::<Vec<_>>(),
            ["bulk", "3", "3", "low", "64+64", "5.7", "%", "20.0", "%", "28.5", "%"]
        );
        assert!(page.contains("sends 16 KiB before one packet"), "{page}");
        let seen = page.lines().filter(|line| line.starts_with("bulk")).nth(1).expect("a row");
        assert!(seen.contains("20.0 / 20.0 %"), "{seen}");
    }

    #[test]
    fn page__present_tables_stand_next_to_the_plan() {
        let plan = QosPlan::new(Bytes(2048)).expect("a payload of ports");
        let mut switches = plan.clone();
        switches.tables.high_limit = 255;
        let present = PresentTables { adapters: plan.clone(), switches };
        let page = page(&plan, Some(&present));
        let bulk = page.lines().filter(|line| line.starts_with("bulk")).nth(2).expect("a row");
        assert!(bulk.contains("20.0 / 0.0 %"), "{bulk}");
    }

    #[test]
    fn devices__each_switch_says_which_lines_set_it() {
        let plan = QosPlan::new(Bytes(4096)).expect("a payload of ports");
        let port = |device: &str, is_switch, lid, number| PortAddress {
            device: device.to_owned(),
            is_switch,
            lid,
            number,
        };
        let ports = [
            port("leaf1", true, 2, 0),
            port("leaf1", true, 2, 1),
            port("leaf2", true, 3, 7),
            port("n0", false, 4, 1),
        ];
        let page = devices(&plan, &ports, None).expect("nothing is read");
        for line in [
            "qos_ca_ lines set 1 ports of adapters.",
            "switch leaf1 lid 2: qos_swe_ lines set 1 ports; qos_sw0_ lines set the levels of its port 0.",
            "switch leaf2 lid 3: qos_swe_ lines set 1 ports; its port 0 is a base one, which has no tables.",
        ] {
            assert!(page.lines().any(|it| it == line), "{page}");
        }
    }
}
