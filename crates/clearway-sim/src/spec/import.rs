//! Writes a fabric file from the settings of a live InfiniBand network and what was discovered in
//! it.
//!
//! # Model
//! The new file extends a shipped fabric, which knows what the tables do not say: delays, buffers,
//! hosts. It adds a policy with the lanes and tables of opensm.conf and, where ibnetdiscover's text
//! is given, the graph cable by cable.

use std::collections::BTreeMap;
use std::fmt::Write;

use clearway_proto::base::Class;

use super::discover::{self, CableEnd, DiscoveredCable, Subnet};
use super::figure::{write_rate, write_time};
use super::file::FileError;
use super::opensm::{self, PortTables};
use super::read::NO_LANE;
use super::{LinkRole, presets};

/// Text from outside: the name of its file and what it says.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'a> {
    /// For messages.
    pub file: &'a str,
    /// All of it.
    pub text: &'a str,
}

impl SourceText<'_> {
    pub(super) fn wrong(&self, (line, why): (u32, String)) -> FileError {
        FileError::Wrong { file: self.file.to_owned(), line, why }
    }
}

/// A fabric file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The file.
    pub text: String,
    /// What a person should know about the network it came from.
    pub remarks: Vec<String>,
}

/// Makes a fabric file called `name` from an opensm.conf and, if given, ibnetdiscover's text, on
/// top of the fabric `base`.
///
/// # Errors
/// What is wrong with one of them, with its line.
pub fn import(
    name: &str,
    base: &str,
    conf: SourceText<'_>,
    net: Option<SourceText<'_>>,
) -> Result<Imported, FileError> {
    let tables = opensm::parse(conf.text).map_err(|wrong| conf.wrong(wrong))?;
    let mut text = format!(
        "format = 1\nextends = {}\nname = {}\nabout = {}\ndefault-policy = \"imported\"\n",
        quoted(base),
        quoted(name),
        quoted(&format!("Imported from {}, on the figures of {base}.", conf.file)),
    );
    let subnet =
        net.map(|net| discover::parse(net.text).map_err(|wrong| net.wrong(wrong))).transpose()?;
    if let (Some(subnet), Some(net)) = (&subnet, net) {
        write_graph(&mut text, subnet, net.file, base)?;
    }
    let exceptions = exceptions(&tables, subnet.as_ref()).map_err(|why| conf.wrong((1, why)))?;
    let lanes = tables.adapters.lanes.max(tables.switches.lanes);
    write_policy(&mut text, &tables, lanes, conf.file);
    if !exceptions.is_empty() {
        put(&mut text, format_args!("exceptions = [\n{exceptions}]\n"));
    }
    put(&mut text, format_args!("\n[policy.imported.service-level]\n"));
    put(
        &mut text,
        format_args!("source = \"the map that Clearway sets up\"\nconfidence = \"guess\"\n"),
    );
    for class in Class::ALL {
        put(&mut text, format_args!("{class} = {}\n", tables.levels[class.index()]));
    }
    write_tables(&mut text, "host", &tables.adapters);
    write_tables(&mut text, "switch", &tables.switches);
    Ok(Imported { text, remarks: tables.remarks })
}

/// Writes text; writing to a `String` cannot fail.
fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

/// Returns `text` as a TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn write_policy(text: &mut String, tables: &opensm::OpensmConf, lanes: u8, file: &str) {
    put(
        text,
        format_args!("\n[policy.imported]\nabout = {}\n", quoted(&format!("As {file} says."))),
    );
    put(text, format_args!("source = {}\nconfidence = \"config\"\n", quoted(file)));
    put(text, format_args!("virtual-lanes = {lanes}\nloss = \"credits\"\n"));
    put(text, format_args!("lane-of-level = {:?}\n", tables.adapters.lane_of_level));
}

fn write_tables(text: &mut String, end: &str, tables: &PortTables) {
    let list = |table: &[(u8, u8)]| {
        let entries: Vec<String> =
            table.iter().map(|(lane, weight)| format!("{lane}:{weight}")).collect();
        entries.join(", ")
    };
    put(text, format_args!("\n[policy.imported.{end}]\nkind = \"tables\"\n"));
    put(text, format_args!("high = \"{}\"\nlow = \"{}\"\n", list(&tables.high), list(&tables.low)));
    put(text, format_args!("high-limit = {}\n", tables.high_limit));
}

/// Switches may map levels to other lanes than adapters do; without the graph only levels that
/// adapters drop may differ.
fn exceptions(tables: &opensm::OpensmConf, subnet: Option<&Subnet>) -> Result<String, String> {
    let (adapters, switches) = (&tables.adapters.lane_of_level, &tables.switches.lane_of_level);
    let differs = (0..adapters.len())
        .find(|level| adapters[*level] != NO_LANE && adapters[*level] != switches[*level]);
    let Some(level) = differs else { return Ok(String::new()) };
    let Some(subnet) = subnet else {
        return Err(format!(
            "service level {level} is on lane {} at adapters and {} at switches; give --switches, so that each cable can be named",
            adapters[level], switches[level]
        ));
    };
    let mut text = String::new();
    for cable in &subnet.cables {
        let [a, b] = &cable.ends;
        for (from, to) in
            [(a, b), (b, a)].into_iter().filter(|(from, _)| subnet.switches.contains(from))
        {
            put(
                &mut text,
                format_args!(
                    "  {{ from = {}, to = {}, lane-of-level = {switches:?} }},\n",
                    quoted(from),
                    quoted(to)
                ),
            );
        }
    }
    Ok(text)
}

fn write_graph(
    text: &mut String,
    subnet: &Subnet,
    file: &str,
    base: &str,
) -> Result<(), FileError> {
    let spec = presets::load(base, None)?;
    let mut links: BTreeMap<String, &DiscoveredCable> = BTreeMap::new();
    for cable in &subnet.cables {
        links.entry(link_name(cable)).or_insert(cable);
    }
    let rails = fewest_cables(subnet);
    put(
        text,
        format_args!(
            "\n[host]\nrails = {{ value = {rails}, source = {}, confidence = \"config\" }}\n",
            quoted(file)
        ),
    );
    for (name, cable) in links {
        let role = if cable.at == CableEnd::Host { LinkRole::Host } else { LinkRole::Up };
        let like = spec.links.iter().find(|link| link.role == role).or(spec.links.first());
        let source = quoted(&format!("{file}: {}", cable.speed));
        let role = if cable.at == CableEnd::Host { "host" } else { "up" };
        put(text, format_args!("\n[link.{name}]\nrole = \"{role}\"\n"));
        put(
            text,
            format_args!(
                "rate = {{ value = \"{}\", source = {source}, confidence = \"config\" }}\n",
                write_rate(cable.rate)
            ),
        );
        if let Some(like) = like {
            let source = quoted(&format!("link.{} of {base}", like.name));
            let mut figure = |key: &str, value: String| {
                put(
                    text,
                    format_args!(
                        "{key} = {{ value = \"{value}\", source = {source}, confidence = \"guess\" }}\n"
                    ),
                );
            };
            figure("delay", write_time(like.delay));
            figure("buffer", format!("{}B", like.buffer.0));
        }
    }
    put(text, format_args!("\n[routing]\nkind = \"minimal\"\n\n[topology]\nkind = \"explicit\"\n"));
    let list =
        |names: &[String]| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    put(
        text,
        format_args!(
            "hosts = [{}]\nswitches = [{}]\ncables = [\n",
            list(&subnet.hosts),
            list(&subnet.switches)
        ),
    );
    for cable in &subnet.cables {
        let [a, b] = &cable.ends;
        put(
            text,
            format_args!("  [{}, {}, {}],\n", quoted(a), quoted(b), quoted(&link_name(cable))),
        );
    }
    put(text, format_args!("]\n"));
    Ok(())
}

fn link_name(cable: &DiscoveredCable) -> String {
    format!("{}-{}", if cable.at == CableEnd::Host { "host" } else { "up" }, cable.speed)
}

/// Cables of the host that has fewest: as many ports as every host can use.
fn fewest_cables(subnet: &Subnet) -> usize {
    let mut count: BTreeMap<&str, usize> =
        subnet.hosts.iter().map(|host| (host.as_str(), 0)).collect();
    for end in subnet.cables.iter().flat_map(|cable| &cable.ends) {
        if let Some(count) = count.get_mut(end.as_str()) {
            *count += 1;
        }
    }
    count.into_values().min().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::file::{FabricFile, FileOptions};
    use crate::spec::{Arbiter, Topology};

    const NET: &str = "Switch 8 \"S-01\" # \"sw \\ \"\n[1] \"H-02\"[1] # \"a HCA-1\" 4xEDR\n[2] \"H-03\"[1] # \"b HCA-1\" 4xEDR\n\
                       Ca 1 \"H-02\" # \"a HCA-1\"\nCa 1 \"H-03\" # \"b HCA-1\"\n";

    fn made(conf: &str, net: Option<&str>) -> Result<FabricFile, FileError> {
        let conf = SourceText { file: "opensm.conf", text: conf };
        let net = net.map(|text| SourceText { file: "net.txt", text });
        let made = import("mine", "edr", conf, net)?;
        FabricFile::parse("mine.toml", &made.text, FileOptions::default())
    }

    #[test]
    fn import__tables_become_a_policy_that_passes_every_check() {
        let file = made("qos TRUE\nqos_ca_high_limit 255\nqos_ca_vlarb_high 0:40\n", None).unwrap();
        file.prove().unwrap();
        let Arbiter::Tables(host) = &file.spec.arbitration.host else { panic!("tables") };
        assert_eq!((host.high_limit, host.high.as_slice()), (255, [(0, 40)].as_slice()));
        assert_eq!((file.policy.as_str(), file.spec.classes.virtual_lanes), ("imported", 8));
    }

    #[test]
    fn import__a_discovered_graph_can_be_routed() {
        let file = made("qos TRUE\n", Some(NET)).unwrap();
        let (network, _) = file.prove().unwrap();
        assert_eq!(network.graph.hosts(), 2);
        let Topology::Explicit { hosts, .. } = &file.spec.topology else { panic!("explicit") };
        assert_eq!(hosts.as_slice(), ["a", "b"]);
    }

    #[test]
    fn import__switches_with_other_lanes_need_the_graph() {
        let conf = "qos TRUE\nqos_ca_sl2vl 0,1,2,3\nqos_swe_sl2vl 0,1,2,2\n";
        let sentence = made(conf, None).unwrap_err().to_string();
        assert!(
            sentence.contains("service level 3 is on lane 3 at adapters and 2 at switches"),
            "{sentence}"
        );
        let file = made(conf, Some(NET)).unwrap();
        assert_eq!(file.spec.classes.lane_exceptions.len(), 2);
    }
}
