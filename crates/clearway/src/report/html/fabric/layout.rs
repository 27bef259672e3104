//! Decides where a picture has each device of a network.
//!
//! # Invariants
//! I1. Every position is finite and within the picture; equal networks have equal pictures.
//! I2. Names are written only where each has room.

use std::collections::BTreeMap;
use std::f64::consts::{PI, TAU};

use crate::report::model::{ReportFabric, Switch, SwitchArrangement};

/// Width of a picture: that of the page's column.
pub(super) const WIDTH: f64 = 1000.0;
/// Room of one character of a name.
pub(super) const CHARACTER: f64 = 6.3;
/// Height of a switch that bears its name.
pub(super) const BOX: f64 = 20.0;
/// Distance of hosts that are drawn as cells, at most.
const CELL: f64 = 11.0;
/// Links of two rows stay apart from those of a third at this distance.
const ROW: f64 = 210.0;
/// Distance of rows within a group: links of a row bend in between.
const GROUP_ROW: f64 = 118.0;

/// A point of the picture.
pub(super) type Point = [f64; 2];

/// Where everything is.
pub(super) struct FabricLayout {
    pub(super) height: f64,
    /// By host; absent where there is no room for any.
    pub(super) hosts: Vec<Option<Point>>,
    pub(super) switches: Vec<Point>,
    /// Side of a host's cell; absent where hosts are drawn one by one with their cables.
    pub(super) cell: Option<f64>,
    /// Width and height of a switch.
    pub(super) switch: [f64; 2],
    pub(super) named: SwitchNames,
    /// Names of groups.
    pub(super) captions: Vec<(Point, String)>,
}

/// Whether switches bear their names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SwitchNames {
    Yes,
    No,
}

impl FabricLayout {
    /// Returns where the devices of `fabric` are.
    pub(super) fn from_fabric(fabric: &ReportFabric) -> Self {
        match fabric.shape {
            SwitchArrangement::Rows => rows(fabric),
            SwitchArrangement::Groups => groups(fabric),
        }
    }

    /// Returns where device `number` is.
    pub(super) fn device_position(&self, number: u32) -> Option<Point> {
        let number = number as usize;
        match self.hosts.get(number) {
            Some(host) => *host,
            None => self.switches.get(number - self.hosts.len()).copied(),
        }
    }

    fn new(fabric: &ReportFabric, height: f64, switches: Vec<Point>, room: f64) -> Self {
        let longest = fabric.switches.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
        let width = longest as f64 * CHARACTER + 8.0;
        let named = if width + 3.0 <= room { SwitchNames::Yes } else { SwitchNames::No };
        let small = (room * 0.6).clamp(2.0, 12.0);
        let switch = if named == SwitchNames::Yes { [width, BOX] } else { [small, small] };
        let hosts = vec![None; fabric.hosts.len()];
        Self { height, hosts, switches, cell: Some(CELL), switch, named, captions: Vec::new() }
    }
}

/// Returns the hosts at each switch, by number.
fn hosts_of(fabric: &ReportFabric) -> BTreeMap<usize, Vec<usize>> {
    let count = fabric.hosts.len();
    let mut hosts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut placed = vec![false; count];
    for link in &fabric.links {
        let [host, switch] = link.ends.map(|end| end as usize);
        // A host with several switches stands at the first.
        if switch >= count && placed.get(host) == Some(&false) {
            placed[host] = true;
            hosts.entry(switch - count).or_default().push(host);
        }
    }
    hosts
}

/// Returns the numbers of switches by what `key` says of them, in order.
fn by(switches: &[Switch], key: impl Fn(&Switch) -> u32) -> Vec<Vec<usize>> {
    let mut sets: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    switches
        .iter()
        .enumerate()
        .for_each(|(i, switch)| sets.entry(key(switch)).or_default().push(i));
    sets.into_values().collect()
}

/// Returns the rows of switches, the hosts below.
fn rows(fabric: &ReportFabric) -> FabricLayout {
    let levels = by(&fabric.switches, |switch| switch.row);
    let bottom = 24.0 + ROW * levels.len().saturating_sub(1) as f64;
    let mut at = vec![[0.0; 2]; fabric.switches.len()];
    let mut fullest = 1;
    for (level, row) in levels.iter().enumerate() {
        fullest = fullest.max(row.len());
        for (i, switch) in row.iter().enumerate() {
            at[*switch] =
                [(i as f64 + 0.5) * WIDTH / row.len() as f64, bottom - ROW * level as f64];
        }
    }
    let slot = WIDTH / levels.first().map_or(1, Vec::len).max(1) as f64;
    let mut places = FabricLayout::new(fabric, bottom, at, WIDTH / fullest as f64);
    let hosts = hosts_of(fabric);
    let most = hosts.values().map(Vec::len).max().unwrap_or(0).max(1);
    let longest = fabric.hosts.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let apart = (slot / most as f64).min(110.0);
    if apart >= longest as f64 * CHARACTER + 6.0 {
        for (switch, hosts) in &hosts {
            let [x, y] = places.switches.get(*switch).copied().unwrap_or_default();
            for (i, host) in hosts.iter().enumerate() {
                places.hosts[*host] =
                    Some([x + (i as f64 - (hosts.len() - 1) as f64 / 2.0) * apart, y + 110.0]);
            }
        }
        places.cell = None;
        places.height = bottom + 145.0;
    } else {
        let cell = CELL.min(slot * 0.9);
        let columns = (((slot * 0.92) / cell) as usize).clamp(1, 12);
        cells(&mut places, &hosts, cell, columns, |[x, y]| [x, y + BOX / 2.0 + 8.0]);
        places.height = bottom + 24.0 + most.div_ceil(columns) as f64 * cell;
    }
    places
}

/// Puts hosts as cells of blocks whose upper edge has its middle where `anchor` of their switch
/// says.
fn cells(
    places: &mut FabricLayout,
    hosts: &BTreeMap<usize, Vec<usize>>,
    cell: f64,
    columns: usize,
    anchor: impl Fn(Point) -> Point,
) {
    for (switch, hosts) in hosts {
        let Some(at) = places.switches.get(*switch) else { continue };
        let [x, y] = anchor(*at);
        let wide = columns.min(hosts.len());
        for (i, host) in hosts.iter().enumerate() {
            let (column, row) = ((i % columns) as f64, (i / columns) as f64);
            let left = x - wide as f64 * cell / 2.0;
            places.hosts[*host] = Some([left + (column + 0.5) * cell, y + (row + 0.5) * cell]);
        }
    }
    places.cell = Some(cell);
}

/// Places groups in a ring; a single one fills the picture.
fn groups(fabric: &ReportFabric) -> FabricLayout {
    let groups = by(&fabric.switches, |switch| switch.group);
    let count = groups.len().max(1);
    let sine = (PI / count as f64).sin();
    let (radius, side) = if count == 1 {
        (0.0, WIDTH)
    } else {
        let radius = WIDTH / 2.0 / (1.0 + 0.85 * sine);
        (radius, 2.0 * 0.85 * sine * radius)
    };
    let mut at = vec![[0.0; 2]; fabric.switches.len()];
    let (mut room, mut grid) = (side, None);
    let mut centres = Vec::new();
    for (number, members) in groups.iter().enumerate() {
        let angle = TAU * number as f64 / count as f64 + PI / count as f64 - PI / 2.0;
        let centre = [WIDTH / 2.0 + radius * angle.cos(), radius * angle.sin()];
        centres.push(centre);
        let switches: Vec<Switch> =
            members.iter().filter_map(|i| fabric.switches.get(*i)).cloned().collect();
        let rows = by(&switches, |switch| switch.row);
        if rows.len() > 1 {
            let columns = rows.iter().map(Vec::len).max().unwrap_or(1).max(1);
            let pitch = [side / columns as f64, GROUP_ROW.min(side * 0.9 / rows.len() as f64)];
            (room, grid) = (room.min(pitch[0]), Some(pitch));
            for (row, column, member) in rows
                .iter()
                .enumerate()
                .flat_map(|(r, row)| row.iter().enumerate().map(move |(c, m)| (r, c, *m)))
            {
                let offset = |i: usize, n: usize| i as f64 - (n - 1) as f64 / 2.0;
                let x = centre[0] + offset(column, columns) * pitch[0];
                at[members[member]] = [x, centre[1] + offset(row, rows.len()) * pitch[1]];
            }
        } else {
            let ring = if members.len() > 1 { side * 0.33 } else { 0.0 };
            room = room.min(if ring > 0.0 { TAU * ring / members.len() as f64 } else { side });
            for (i, member) in members.iter().enumerate() {
                let angle = TAU * (i as f64 + 0.5) / members.len() as f64 - PI / 2.0;
                at[*member] = [centre[0] + ring * angle.cos(), centre[1] + ring * angle.sin()];
            }
        }
    }
    finish_groups(fabric, at, &centres, GroupMeasures { side, room, grid })
}

/// What the layout of groups found.
struct GroupMeasures {
    /// Side of the square of one group.
    side: f64,
    /// Distance of neighbouring switches.
    room: f64,
    /// Distances of columns and rows, where groups are grids.
    grid: Option<[f64; 2]>,
}

/// Moves everything into the picture, adds hosts and captions.
fn finish_groups(
    fabric: &ReportFabric,
    mut at: Vec<Point>,
    centres: &[Point],
    measures: GroupMeasures,
) -> FabricLayout {
    let GroupMeasures { side, room, grid } = measures;
    let margin = if grid.is_some() { 80.0 } else { side * 0.17 + 12.0 };
    let ends = |at: &[Point]| {
        at.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], p| {
            [low.min(p[1]), high.max(p[1])]
        })
    };
    let [top, bottom] = if at.is_empty() { [0.0, 0.0] } else { ends(&at) };
    let down = margin - top;
    at.iter_mut().for_each(|point| point[1] += down);
    let mut places = FabricLayout::new(fabric, bottom - top + margin * 2.0, at, room);
    let hosts = hosts_of(fabric);
    let most = hosts.values().map(Vec::len).max().unwrap_or(0).max(1);
    match grid {
        Some(pitch) if pitch[0] >= 24.0 && pitch[1] >= 60.0 => {
            let cell = CELL.min(pitch[0] * 0.9 / most.min(8) as f64);
            cells(&mut places, &hosts, cell, most.min(8), |[x, y]| [x, y + BOX / 2.0 + 3.0]);
            places.height -= margin - 50.0;
        }
        None if side >= 120.0 => {
            let columns = (most as f64).sqrt().ceil().max(1.0);
            let cell = (side * 0.12 / columns).min(CELL);
            let block = columns * cell;
            let away = side * 0.09 + block * 0.35;
            let centre_of = |[x, y]: Point| {
                let near = |c: &&Point| (c[0] - x).powi(2) + (c[1] + down - y).powi(2);
                let [cx, cy] = centres
                    .iter()
                    .min_by(|a, b| near(a).total_cmp(&near(b)))
                    .copied()
                    .unwrap_or_default();
                let (dx, dy) = (x - cx, y - cy - down);
                let length = dx.hypot(dy);
                let [right, below] =
                    if length < 1.0 { [0.0, 1.0] } else { [dx / length, dy / length] };
                [x + right * away, y + below * away - block / 2.0]
            };
            cells(&mut places, &hosts, cell, columns as usize, centre_of);
        }
        _ => {}
    }
    // A lone switch stands in the middle of its group, and its name says enough.
    if centres.len() > 1 && places.switches.len() > centres.len() {
        let caption = |(i, c): (usize, &Point)| ([c[0], c[1] + down], format!("group {i}"));
        places.captions = centres.iter().enumerate().map(caption).collect();
    }
    places
}
