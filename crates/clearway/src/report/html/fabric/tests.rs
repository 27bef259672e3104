//! Pictures of every shape hold together, and pages show them for simulated networks only.

use super::*;
use crate::report::html;
use crate::report::model::{FabricLink, Switch, SwitchArrangement};
use crate::report::sample;

/// Returns the words of a page: everything before the material of its script.
fn words(report: &Report) -> String {
    let page = html::render(report, &[]);
    page[..page.find("id=\"material\"").expect("the material")].to_owned()
}

/// Returns a network of `switches` in rows or groups with hosts at each switch of the first row,
/// all switches joined in a chain.
fn network(shape: SwitchArrangement, places: &[[u32; 2]], hosts_per_switch: u32) -> ReportFabric {
    let row_0 = places.iter().filter(|[_, row]| *row == 0).count() as u32;
    let hosts = row_0 * hosts_per_switch;
    let mut links: Vec<FabricLink> = (0..hosts)
        .map(|n| FabricLink { ends: [n, hosts + n / hosts_per_switch], cables: 1, gbps: 25.0 })
        .collect();
    let chain = (1..places.len() as u32).map(|n| FabricLink {
        ends: [hosts + n - 1, hosts + n],
        cables: 2,
        gbps: 100.0,
    });
    links.extend(chain);
    ReportFabric {
        name: "net".to_owned(),
        kind: "a network".to_owned(),
        shape,
        cables: 0,
        hosts: (0..hosts).map(|n| format!("n{n}")).collect(),
        switches: places
            .iter()
            .map(|&[group, row]| Switch { name: format!("g{group}r{row}"), group, row })
            .collect(),
        links,
        loads: Vec::new(),
    }
}

fn load_of(fabric: &ReportFabric) -> PhaseLoad {
    let mut load = sample::simulated().fabric.expect("it has one").loads.remove(0);
    load.links = fabric.links.iter().map(|link| [f64::from(link.ends[0] % 101), 0.0]).collect();
    load
}

/// Returns every number behind `attribute="` in `svg`.
fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
    let opening = format!(" {attribute}=\"");
    let values = svg.split(&opening).skip(1).filter_map(|rest| rest.split('"').next());
    values.map(|value| value.parse().unwrap_or_else(|_| panic!("{attribute}={value}"))).collect()
}

/// Fails unless every element of `svg` is closed by its own name and nothing stands open at the
/// end.
fn check_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, rest) = piece.split_once('>').expect("a tag ends");
        assert!(!rest.contains('>') && tag.matches('"').count() % 2 == 0, "{piece}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (false, false) => open.push(name),
            (false, true) => {}
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn fabric__is_shown_for_simulated_networks_only() {
    let shown = words(&sample::simulated());
    for said in [
        "The fabric",
        "8 hosts, 4 switches, 12 cables",
        "g0s1 \u{2192} g1s0 (port 3)",
        "65.5\u{202f}kB",
    ] {
        assert!(shown.contains(said), "the page must say {said}");
    }
    assert_eq!(shown.matches("viewBox").count(), 2, "one picture for each queue");
    assert!(!words(&sample::incast_demo()).contains("The fabric"));
}

#[test]
fn fabric__marks_ports_that_stood_still_and_no_others() {
    let report = sample::simulated();
    let load = &report.fabric.as_ref().expect("it has one").loads[0];
    assert_eq!(marked(load).count(), 2, "half a percent is not worth a mark");
    assert!(
        words(&report)
            .contains("low-latency 12.5\u{202f}%; best-effort, bulk, scavenger 87.5\u{202f}%")
    );
}

#[test]
fn step__has_a_colour_for_every_load() {
    assert_eq!([0.0, 9.9, 10.0, 50.0, 89.9, 90.0, 100.0].map(step), [0, 0, 1, 3, 4, 5, 5]);
}

#[test]
fn draw__is_well_formed_and_stays_inside_the_picture_whatever_the_shape() {
    let grid = |groups: u32, rows: u32, columns: u32| -> Vec<[u32; 2]> {
        (0..groups * rows * columns).map(|n| [n / (rows * columns), n / columns % rows]).collect()
    };
    let levels: Vec<[u32; 2]> = (0..40).map(|n| [0, n / 20]).collect();
    let cases = [
        (SwitchArrangement::Rows, vec![[0, 0]], 8),
        (SwitchArrangement::Rows, vec![[0, 0]], 300),
        (SwitchArrangement::Rows, vec![[0, 0], [0, 0]], 4),
        (SwitchArrangement::Rows, levels, 32),
        (SwitchArrangement::Groups, grid(1, 6, 16), 4),
        (SwitchArrangement::Groups, grid(4, 1, 8), 16),
        (SwitchArrangement::Groups, grid(26, 6, 16), 1),
        (SwitchArrangement::Groups, grid(2, 1, 1), 1),
        (SwitchArrangement::Groups, Vec::new(), 1),
    ];
    for (shape, places, hosts) in cases {
        let fabric = network(shape, &places, hosts);
        let svg = picture::draw(&fabric, &load_of(&fabric));
        check_well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{shape:?} {}", places.len());
        let height = layout::FabricLayout::from_fabric(&fabric).height;
        for (attribute, limit) in [("x", 1000.0), ("y", height), ("cx", 1000.0), ("cy", height)] {
            let found = numbers(&svg, attribute);
            assert!(
                found.iter().all(|at| (0.0..=limit).contains(at)),
                "{shape:?} {} {attribute}",
                places.len()
            );
        }
    }
}

#[test]
fn draw__passes_over_what_a_foreign_file_gets_wrong() {
    let mut report = sample::simulated();
    let fabric = report.fabric.as_mut().expect("it has one");
    fabric.name = "</svg><script>".to_owned();
    fabric.switches[0].name = "\"><script>".to_owned();
    (fabric.switches[1].group, fabric.switches[1].row) = (u32::MAX, u32::MAX);
    fabric.links[0].ends = [u32::MAX, u32::MAX];
    fabric.links[1] = FabricLink { ends: [3, 3], cables: 0, gbps: -1.0 };
    fabric.loads[0].links.truncate(2);
    fabric.loads[0].stalled[0].ends = [u32::MAX, 0];
    for load in &fabric.loads {
        let svg = picture::draw(fabric, load);
        check_well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("<script"));
    }
}
