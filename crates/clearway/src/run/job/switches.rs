//! Which switches the hosts of a job lie below, as a `topology.conf` of Slurm says it or Slurm tells
//! each task; and which ranks are in one part of the network.
//!
//! # Model
//! A host has a *path*: the switches from the top down to its leaf. The parts of a network, its
//! *neighbourhoods*, are what lies below different switches at the first level where the paths of a
//! job part: groups of a dragonfly, subtrees below the top of a tree, leaves where nothing but the
//! top is above them. Cables are fewest above that level. Hosts whose path nobody knows are one
//! more part.
//!
//! # Source
//! topology.conf(5), `topology/tree`: `SwitchName=` with `Nodes=` or `Switches=`, lists in
//! brackets, `#` before comments, keys in any case. srun(1): `SLURM_TOPOLOGY_ADDR` has the path and
//! the node, with a dot between each, and `SLURM_TOPOLOGY_ADDR_PATTERN` says which they are. A level
//! that a path skips is empty there.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clearway_runtime::launch::{escaped, hostlist};
use serde::{Deserialize, Serialize};

/// Longest file: that of hosts.
const FILE_MAX: u64 = 1 << 24;
/// Longest address of a task: four names as long as DNS has them.
const ADDRESS_MAX: usize = 1024;
/// Switches from the top to a leaf: far more than networks have.
const LEVELS_MAX: usize = 64;
/// Neighbourhoods that are named to people.
const NAMED_MAX: usize = 8;

/// Where a job learns which hosts are neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TopologySource {
    /// From Slurm, where it knows.
    #[default]
    Auto,
    /// Nowhere.
    None,
    /// From round trips between its hosts.
    Measured,
    /// From this `topology.conf`.
    File(PathBuf),
}

impl TopologySource {
    /// The words for all but a file.
    pub(crate) const WORDS: [&str; 3] = ["auto", "none", "measured"];
}

impl FromStr for TopologySource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            "measured" => Self::Measured,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for TopologySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Measured => f.write_str("measured"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What Slurm tells a task of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlurmAddress {
    path: Vec<String>,
    pub(super) node: String,
}

impl SlurmAddress {
    /// Returns that of this process; `None` outside of Slurm, and where Slurm knows of no switches.
    pub(super) fn own() -> Option<Self> {
        let [address, pattern] = ["SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN"]
            .map(|name| std::env::var(name).ok());
        Self::parse(&address?, &pattern?)
    }

    /// Returns what the two variables say; `None` where that is no switch and a node.
    pub(super) fn parse(address: &str, pattern: &str) -> Option<Self> {
        let count = pattern.split('.').count();
        // The node comes last, and its name may have dots.
        let mut parts = address.splitn(count, '.').map(str::to_owned).collect::<Vec<_>>();
        let is_path = address.len() <= ADDRESS_MAX
            && pattern.rsplit('.').next() == Some("node")
            && count > 1
            && parts.len() == count;
        let node = parts.pop().filter(|node| is_path && !node.is_empty())?;
        Some(Self { path: parts, node })
    }

    /// Returns the switches, from the top.
    pub(super) fn path(&self) -> &[String] {
        &self.path
    }
}

/// A switch of a file.
#[derive(Debug)]
struct NetworkSwitch {
    name: String,
    /// The line that has it.
    line: usize,
    above: Option<usize>,
}

/// The switches of a `topology.conf`.
#[derive(Debug)]
pub(super) struct SwitchTree {
    switches: Vec<NetworkSwitch>,
    leaf_of_host: BTreeMap<String, usize>,
}

/// What one line says.
#[derive(Default)]
struct SwitchLine {
    name: String,
    nodes: Vec<String>,
    below: Vec<String>,
}

impl SwitchTree {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or a line of it: then with its number.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let cannot = || format!("--topology {} cannot be read", path.display());
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes))
            .with_context(cannot)?;
        Self::parse(&bytes).or_else(|(line, what)| bail!("{}, line {line}: {what}", path.display()))
    }

    /// Reads the bytes of a file; or returns the line, from 1, and what is wrong with it.
    fn parse(bytes: &[u8]) -> Result<Self, (usize, String)> {
        if bytes.len() as u64 > FILE_MAX {
            return Err((1, format!("the file is longer than {FILE_MAX} bytes")));
        }
        let mut tree = Self { switches: Vec::new(), leaf_of_host: BTreeMap::new() };
        let mut number_of = BTreeMap::new();
        let mut links = Vec::new();
        for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            let at_line = |what: String| (line, what);
            let text = str::from_utf8(text).map_err(|_| at_line("this is no text".to_owned()))?;
            let Some(said) = switch_line(text).map_err(at_line)? else { continue };
            let number = tree.switches.len();
            if number_of.insert(said.name.clone(), number).is_some() {
                return Err(at_line(format!("switch {} has a line already", said.name)));
            }
            // A list of lists would have no bound.
            if links.len() + said.below.len() > hostlist::HOSTS_MAX
                || tree.leaf_of_host.len() + said.nodes.len() > hostlist::HOSTS_MAX
            {
                let most = hostlist::HOSTS_MAX;
                return Err(at_line(format!("up to here there are more than {most} names")));
            }
            for node in said.nodes {
                if let Some(other) = tree.leaf_of_host.insert(node.clone(), number) {
                    let other = tree.switches.get(other).map_or(&said.name, |other| &other.name);
                    return Err(at_line(format!("node {node} is below {other} already")));
                }
            }
            links.extend(said.below.into_iter().map(|below| (line, number, below)));
            tree.switches.push(NetworkSwitch { name: said.name, line, above: None });
        }
        tree.join(&links, &number_of)?;
        if tree.leaf_of_host.is_empty() {
            return Err((1, "the file names no node: SwitchName=s1 Nodes=n[1-4] does".to_owned()));
        }
        Ok(tree)
    }

    /// Puts switches below each other: by line, the upper one, and the name of the lower one.
    fn join(
        &mut self,
        links: &[(usize, usize, String)],
        number_of: &BTreeMap<String, usize>,
    ) -> Result<(), (usize, String)> {
        for (line, above, below) in links {
            let switch = number_of.get(below).and_then(|number| self.switches.get_mut(*number));
            let Some(switch) = switch else {
                return Err((*line, format!("switch {below} has no line of its own")));
            };
            if let Some(other) = switch.above.replace(*above) {
                let other = self.switches.get(other).map_or("another", |other| &other.name);
                return Err((*line, format!("switch {below} is below {other} already")));
            }
        }
        let is_endless = |number: &usize| self.upwards(*number).nth(LEVELS_MAX).is_some();
        let endless = (0..self.switches.len()).find(is_endless);
        match endless.and_then(|number| self.switches.get(number)) {
            Some(NetworkSwitch { name, line, .. }) => {
                Err((*line, format!("switch {name} is below itself, or below {LEVELS_MAX} others")))
            }
            None => Ok(()),
        }
    }

    /// Returns the switch of this number and those above it.
    fn upwards(&self, number: usize) -> impl Iterator<Item = &NetworkSwitch> {
        let next = |switch: &&NetworkSwitch| self.switches.get(switch.above?);
        std::iter::successors(self.switches.get(number), next)
    }

    /// Returns the switches above `host`, from the top; it may have a domain that the file leaves
    /// out.
    pub(super) fn path(&self, host: &str) -> Option<Vec<String>> {
        let short = host.split('.').next().unwrap_or(host);
        let leaf = self.leaf_of_host.get(host).or_else(|| self.leaf_of_host.get(short))?;
        let mut path: Vec<String> = self.upwards(*leaf).map(|one| one.name.clone()).collect();
        path.reverse();
        Some(path)
    }
}

/// Returns what a line says; `None` where it is empty.
fn switch_line(text: &str) -> Result<Option<SwitchLine>, String> {
    let text = text.split('#').next().unwrap_or_default();
    let mut said = SwitchLine::default();
    for word in text.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let names = || hostlist::expand(value).map_err(|error| error.to_string());
        match key.to_ascii_lowercase().as_str() {
            "switchname" if said.name.is_empty() => match <[String; 1]>::try_from(names()?) {
                Ok([name]) => said.name = name,
                Err(_) => return Err("SwitchName has several names; one works".to_owned()),
            },
            "nodes" if said.nodes.is_empty() => said.nodes = names()?,
            "switches" if said.below.is_empty() => said.below = names()?,
            "switchname" | "nodes" | "switches" => return Err(format!("{key} is said twice")),
            // Slurm ignores it too.
            "linkspeed" => {}
            _ => {
                let shown: String = word.chars().take(40).collect();
                return Err(format!(
                    "`{}` is unknown; SwitchName=, Nodes=, Switches= and LinkSpeed= work",
                    escaped(&shown)
                ));
            }
        }
    }
    match (said.name.is_empty(), said.nodes.is_empty() && said.below.is_empty()) {
        (true, true) if text.trim().is_empty() => Ok(None),
        (true, _) => Err("SwitchName= is missing".to_owned()),
        (false, true) => Err(format!("switch {} has neither Nodes= nor Switches=", said.name)),
        (false, false) => Ok(Some(said)),
    }
}

/// The part of the network that each rank of a job is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobNeighbourhoods {
    /// By rank, numbered in the order of their first ranks; empty where all are in one, or nothing
    /// is known.
    pub(crate) by_rank: Vec<u32>,
    /// Their switches; `None` is that of hosts which no switch is known of.
    names: Vec<Option<String>>,
}

impl JobNeighbourhoods {
    /// Creates those of ranks with these paths.
    pub(super) fn from_paths(paths: &[Option<Vec<String>>]) -> Self {
        let known = || paths.iter().flatten();
        let deepest = known().map(Vec::len).max().unwrap_or(0);
        let part = |path: &Vec<String>, level: usize| path.get(level).cloned();
        let parts_at = |level: &usize| {
            let first = known().next().and_then(|path| part(path, *level));
            known().any(|path| part(path, *level) != first)
        };
        let level = (0..deepest).find(parts_at).unwrap_or(0);
        let mut found = Self::default();
        for path in paths {
            // A host that is joined above this level is below no switch of it.
            let name = path.as_ref().map(|path| part(path, level).unwrap_or_default());
            let number = found.names.iter().position(|known| *known == name);
            let number = number.unwrap_or_else(|| {
                found.names.push(name);
                found.names.len() - 1
            });
            found.by_rank.push(number as u32);
        }
        if found.names.len() > 1 { found } else { Self::default() }
    }

    /// Returns them for people, in a line; empty where there are none.
    pub(crate) fn about(&self) -> String {
        let ranks = |number: usize| {
            self.by_rank.iter().filter(|of| usize::try_from(**of) == Ok(number)).count()
        };
        let one = |(number, name): (usize, &Option<String>)| {
            let name = name.as_deref().map_or("other hosts".to_owned(), escaped);
            format!("{name} ({})", ranks(number))
        };
        let mut named: Vec<String> =
            self.names.iter().enumerate().take(NAMED_MAX).map(one).collect();
        if self.names.len() > NAMED_MAX {
            named.push("...".to_owned());
        }
        match self.names.len() {
            0 => String::new(),
            count => format!(
                "turns alternate between {count} parts of the network, by switch (ranks): {}\n",
                named.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    //! A tree, its mistakes, and the parts that follow from paths.

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    const TREE: &[u8] = b"# ours\n\
        switchname=s1 nodes=n[01-02],m3 LinkSpeed=1\r\n\
        \n\
        SwitchName=s2 Nodes=n03\n\
        SwitchName=s3 Nodes=n[04-05] # far\n\
        SwitchName=g1 Switches=s[1-2]\n\
        SwitchName=top Switches=g1,s3";

    #[test]
    fn from_str__takes_each_word_and_files_of_other_names() {
        let read = |text: &str| text.parse::<TopologySource>().unwrap_or_default();
        for word in TopologySource::WORDS {
            assert!(!matches!(read(word), TopologySource::File(_)), "{word}");
            assert_eq!(read(word).to_string(), word);
        }
        assert_eq!(read("./measured"), TopologySource::File("./measured".into()));
    }

    #[test]
    fn path__is_from_the_top_to_the_leaf() {
        let tree = SwitchTree::parse(TREE).expect("a tree");
        assert_eq!(tree.path("n02"), Some(names(&["top", "g1", "s1"])));
        assert_eq!(tree.path("n05.example.org"), Some(names(&["top", "s3"])));
        assert_eq!(tree.path("n2"), None, "widths count");
    }

    #[test]
    fn parse__names_the_line_of_a_mistake() {
        let table: [(&[u8], usize, &str); 16] = [
            (b"", 1, "names no node"),
            (b"SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", 2, "switch a has a line already"),
            (b"SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", 2, "node n1 is below a already"),
            (b"SwitchName=a Nodes=n[1-2],n2", 1, "node n2 is below a already"),
            (b"SwitchName=a Switches=b\n", 1, "switch b has no line of its own"),
            (
                b"SwitchName=a Nodes=n1\nSwitchName=b Switches=a\n\nSwitchName=c Switches=a",
                4,
                "switch a is below b already",
            ),
            (
                b"SwitchName=l Nodes=n1\nSwitchName=a Switches=b\nSwitchName=b Switches=a",
                2,
                "switch a is below itself",
            ),
            (b"SwitchName=a Switches=a Nodes=n1", 1, "switch a is below itself"),
            (b"\nNodes=n1", 2, "SwitchName= is missing"),
            (b"SwitchName=a", 1, "neither Nodes= nor Switches="),
            (b"SwitchName=a[1-2] Nodes=n1", 1, "SwitchName has several names"),
            (b"SwitchName=a Nodes=n[1-", 1, "a bracket is not closed"),
            (b"SwitchName=a Nodes=n[1-99999]", 1, "more than 65536 hosts"),
            (b"SwitchName=a Nodes=n1 Nodes=n2", 1, "Nodes is said twice"),
            (b"SwitchName=a Nodes=n1\nInclude other\x1b", 2, "`Include` is unknown"),
            (b"SwitchName=a Nodes=\xff", 1, "this is no text"),
        ];
        for (bytes, line, what) in table {
            let (at, said) = SwitchTree::parse(bytes).expect_err(what);
            assert!(at == line && said.contains(what), "{line} {what}: {at} {said}");
        }
    }

    #[test]
    fn parse__many_lists_together_are_bounded() {
        let lines: Vec<String> =
            (0..9).map(|at| format!("SwitchName=s{at} Nodes=n{at}x[1-9999]")).collect();
        let (line, said) = SwitchTree::parse(lines.join("\n").as_bytes()).expect_err("too many");
        assert!(line == 7 && said.contains("more than 65536 names"), "{line} {said}");
    }

    #[test]
    fn read__says_which_file_and_line() {
        let said = SwitchTree::read(Path::new("/nonexistent/topology.conf")).expect_err("no file");
        assert!(format!("{said:#}").contains("--topology /nonexistent/topology.conf"), "{said:#}");
    }

    #[test]
    fn parse__an_address_of_slurm_has_switches_and_a_node() {
        let path = |address, pattern| SlurmAddress::parse(address, pattern).map(|it| it.path);
        assert_eq!(path("top.s1.n1", "switch.switch.node"), Some(names(&["top", "s1"])));
        assert_eq!(path(".s1.n1.example.org", "switch.switch.node"), Some(names(&["", "s1"])));
        for (address, pattern) in [
            ("n1", "node"),
            ("s1.n1", "switch.switch.node"),
            ("s1.", "switch.node"),
            ("s1.s2", "switch.switch"),
            ("", ""),
            (&"s".repeat(2000), "switch.node"),
        ] {
            assert_eq!(path(address, pattern), None, "{address} {pattern}");
        }
    }

    #[test]
    fn from_paths__parts_are_those_of_the_first_level_that_differs() {
        let by_rank = |paths: &[Option<&[&str]>]| {
            let paths: Vec<_> = paths.iter().map(|path| path.map(names)).collect();
            JobNeighbourhoods::from_paths(&paths).by_rank
        };
        let groups = [["top", "g2", "s1"], ["top", "g2", "s2"], ["top", "g1", "s3"]];
        assert_eq!(by_rank(&groups.each_ref().map(|path| Some(&path[..]))), [0, 0, 1]);
        assert_eq!(
            by_rank(&groups[..2].iter().map(|path| Some(&path[..])).collect::<Vec<_>>()),
            [0, 1]
        );
        assert_eq!(
            by_rank(&[Some(&["top", "s1"]), Some(&["top"]), Some(&["top", "s1"])]),
            [0, 1, 0]
        );
        assert_eq!(by_rank(&[Some(&["s1"]), None, None, Some(&["s2"])]), [0, 1, 1, 2]);
        assert_eq!(by_rank(&[None, Some(&["top", "s1"]), Some(&["top", "s1"])]), [0, 1, 1]);
        assert!(
            by_rank(&[None, None]).is_empty()
                && by_rank(&[Some(&["s1"]), Some(&["s1"])]).is_empty()
        );
    }

    #[test]
    fn about__names_parts_and_their_ranks() {
        let paths = ["a", "b", "a"].map(|name| Some(names(&[name])));
        let said = JobNeighbourhoods::from_paths(&paths).about();
        assert!(said.ends_with(": a (2), b (1)\n"), "{said}");
        let many: Vec<_> = (0..20).map(|at| Some(vec![format!("s{at}")])).collect();
        let said = JobNeighbourhoods::from_paths(&many).about();
        assert!(said.contains("20 parts") && said.ends_with("s7 (1), ...\n"), "{said}");
    }

    #[test]
    fn parse__any_lines_of_switches_are_read_or_refused() {
        // Every tree and tangle of three switches with up to one name each.
        let words = ["", "Nodes=n0", "Switches=s0", "Switches=s1", "Switches=s2", "=,[\x00"];
        for number in 0..words.len().pow(3) {
            let word = |at: u32| words[number / words.len().pow(at) % words.len()];
            let text: Vec<_> = (0..3).map(|at| format!("SwitchName=s{at} {}", word(at))).collect();
            if let Ok(tree) = SwitchTree::parse(text.join("\n").as_bytes()) {
                assert!(tree.path("n0").is_some_and(|path| path.len() <= 3), "{text:?}");
            }
        }
    }
}
